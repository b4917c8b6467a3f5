# SPDX-License-Identifier: Apache-2.0
"""``ways``: what each way to attach a BPF program costs a datagram, with a program that does nothing.

A flood of small datagrams on lo, both ends on one CPU: the CPU time that a datagram takes with one empty program, which
each datagram meets once, over what it takes without, in the same round. Nothing attached is measured twice (``again``):
how much the second differs from the first is the noise. Ways that this kernel refuses are named, with the reason.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import build_bpf
from bench import traffic
from bench.floor import source
from bench.measure import Spread, table, turns
from hopscope.errors import KernelError
from hopscope.lab import Namespace
from hopscope.libbpf import BpfObject
from hopscope.probes.attach import attach, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROUNDS: Final = 10
_LOAD_S: Final = 1.0
_OFF, _AGAIN = "off", "again"
# Way → ELF section; each at a place that a datagram passes once.
WAYS: Final = {
    "raw_tp": "raw_tp/net_dev_queue",
    "tp_btf": "tp_btf/net_dev_queue",
    "tracepoint": "tp/net/net_dev_queue",
    "fentry": "fentry/__dev_queue_xmit",
    "fexit": "fexit/__dev_queue_xmit",
    "kprobe": "kprobe/__dev_queue_xmit",
    "kretprobe": "kretprobe/__dev_queue_xmit",
    "cgroup_skb": "cgroup_skb/egress",
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with Namespace() as namespace, TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        objects, refused = _tried(Path(scratch))
        measured = [
            {name: _datagram_ns(namespace, objects, name) for name in order}
            for order in turns((_OFF, _AGAIN, *objects), rounds)
        ]
    yield f"CPU time of a datagram over that without a program; median of {rounds} rounds of {_LOAD_S} s (quartiles)\n"
    yield ways_table(measured) + "\n"
    yield "".join(f"{name}: refused, {why}\n" for name, why in refused.items())


def ways_table(rounds: Sequence[Mapping[str, float]]) -> str:
    """Lay out what each way adds to a datagram, ns."""
    rows = [[_OFF, f"{Spread.of(each[_OFF] for each in rounds).median:.0f}", ""]]
    for name in (_AGAIN, *(each for each in WAYS if each in rounds[0])):
        more = Spread.of(each[name] - each[_OFF] for each in rounds)
        rows.append([name, f"{Spread.of(each[name] for each in rounds).median:.0f}", more.shown("+.0f")])
    return table(("", "ns a datagram", "more"), rows)


def _tried(scratch: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Compile a program for each way; return those that this kernel takes, and why it refuses the others."""
    objects, refused = {}, {}
    for name, section in WAYS.items():
        code = scratch / f"{name}.bpf.c"
        code.write_text(source({"nothing": section}, {"nothing": name}))
        made = code.with_name(f"{name}.bpf.o")
        build_bpf.compile_object(code, made, build_bpf.host_arch())
        try:
            with _attached(made, name):
                objects[name] = made
        except KernelError as error:
            refused[name] = str(error).splitlines()[0]
    return objects, refused


@contextmanager
def _attached(path: Path, kind: str) -> Iterator[None]:
    with BpfObject.open(path) as bpf:
        prepare(bpf.programs["nothing"], kind)
        bpf.load()
        attach(bpf.programs["nothing"], kind)
        yield


def _datagram_ns(namespace: Namespace, objects: Mapping[str, Path], name: str) -> float:
    during: AbstractContextManager[None] = _attached(objects[name], name) if name in objects else nullcontext()
    with during:
        return 1e9 / traffic.per_cpu_second(namespace, "udp", _LOAD_S)
