# SPDX-License-Identifier: Apache-2.0
"""``offload``: what it takes to select events in the reader, in the recording programs, and by tc from frames.

A flood of datagrams over lo, and a condition that keeps every 128th event, every eighth, or all: bits of the time,
which every way can compare. ``reader`` records all and selects in NumPy; ``--keep`` selects in the kernel; ``u32`` and
``bpf`` are filters of tc on the frames of ``wire``, which mirror what they select to another device. CPU time is that
of the process that reads, and of the flood for each datagram; whatever runs in interrupts is in the latter.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import traffic
from bench.measure import Spread, table, turns
from bench.tools import ToolError
from hopscope.lab import Namespace
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from hopscope.live.stream.events import Assembler
from hopscope.model.event_batch import selected
from hopscope.model.event_fields import event_condition
from hopscope.store.schema import EVENT_TABLES
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS: Final = 4
_SETTLE_S: Final = 0.5
_LOAD_S: Final = 2.0
_LOOK_S: Final = 0.04
_POINTS: Final = ("rx.core",)
SHARES: Final = {"1/128": "not time_ns & 127", "1/8": "not time_ns & 7", "all": "time_ns > 0"}
WAYS: Final = ("reader", "--keep", "u32", "bpf")
_HOPSCOPE: Final = (sys.executable, "-P", "-m", "hopscope")


class Figures(NamedTuple):
    """Of one round.

    Attributes
    ----------
    kept_per_s
        Events that were selected.
    lost_share
        Events that got lost or were not sent, of all that there were.
    reader_cpu
        CPU time of the process that reads, in CPUs.
    datagram_ns
        CPU time of both ends of the flood for each datagram.
    """

    kept_per_s: float
    lost_share: float
    reader_cpu: float
    datagram_ns: float


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    cases = [(share, way) for share in SHARES for way in WAYS]
    found: dict[tuple[str, str], list[Figures]] = {case: [] for case in cases}
    for order in turns(cases, rounds):
        for share, way in order:
            found[share, way].append(_measured(way, SHARES[share]))
    yield f"datagrams over lo, both ends on one CPU; median of {rounds} rounds of {_LOAD_S} s (quartiles)\n"
    yield figures_table(found) + "\n\n"


def figures_table(found: dict[tuple[str, str], list[Figures]]) -> str:
    """Lay out what was measured; ratios are to the reader's at the same share."""
    rows = []
    for (share, way), figures in found.items():
        medians = [Spread.of(values).median for values in zip(*figures, strict=True)]
        base = [Spread.of(values).median for values in zip(*found[share, "reader"], strict=True)]
        rows.append([
            share, way, fmt.rate(medians[0]), f"{medians[1] * 100:.1f}%", f"{medians[2] * 100:.1f}%",
            _ratio(medians[2], base[2]), Spread.of(each.datagram_ns for each in figures).shown(".0f"),
            _ratio(medians[3], base[3]),
        ])  # fmt: skip
    head = ("kept", "by", "events/s", "lost", "reader CPU", "ratio", "ns per datagram", "ratio")
    return table(head, rows, names=2)


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base else f"{math.nan}"


def _measured(way: str, condition: str) -> Figures:
    with Namespace() as namespace:
        if way in {"u32", "bpf"}:
            return _by_tc(namespace, way, condition)
        return _by_recorder(namespace, condition, in_kernel=way == "--keep")


def _by_recorder(namespace: Namespace, condition: str, *, in_kernel: bool) -> Figures:
    options = RecordOptions(
        profiles=(), points=_POINTS, namespaces=[namespace.inode], keep=condition if in_kernel else ""
    )
    events = kept = 0
    with Recorder(options) as recorder, contextlib.ExitStack() as stack:
        assembler = Assembler(recorder.metadata())
        stack.callback(assembler.close)
        wanted = event_condition(condition, assembler.known)
        pids = stack.enter_context(traffic.saturated(namespace, "udp", cpus=1))
        time.sleep(_SETTLE_S)
        list(recorder.read())
        begun = _Begun(namespace, pids)
        lost, own_s = recorder.lost, time.process_time()
        while time.monotonic() - begun.at_s < _LOAD_S:
            time.sleep(_LOOK_S)
            for name, columns in recorder.read():
                assembler.add(name, columns)
                if name in EVENT_TABLES:
                    events += len(columns["time_ns"])
            batch = assembler.ready(1 << 62)
            if not in_kernel:
                kept += int(selected(wanted, batch).sum()) if len(batch) else 0
        own_s = time.process_time() - own_s
        took_s, datagram_ns = begun.ended()
        lost = recorder.lost - lost
    kept = events if in_kernel else kept
    return Figures(kept / took_s, lost / max(events + lost, 1), own_s / took_s, datagram_ns)


def _by_tc(namespace: Namespace, matcher: str, condition: str) -> Figures:
    for words in (["link", "add", "m0", "type", "veth", "peer", "m1"], ["link", "set", "m0", "up"]):
        namespace.run(["ip", *words], check=True)
    argv = [*_HOPSCOPE, "wire", "--point", *_POINTS, "--netns", str(namespace.inode)]
    with namespace.popen(argv, stderr=subprocess.PIPE, text=True) as wire:
        try:
            wait_for_wire(wire)
            words = ["wire", "match", "--apply", "--matcher", matcher, "--action", "mirror m0", condition]
            done = namespace.run([*_HOPSCOPE, *words], capture_output=True, text=True)
            if done.returncode:
                raise ToolError(done.stderr.strip())
            with traffic.saturated(namespace, "udp", cpus=1) as pids:
                time.sleep(_SETTLE_S)
                begun = _Begun(namespace, pids)
                before, own_ns = _mirrored(namespace), traffic.cpu_ns(wire.pid)
                time.sleep(_LOAD_S)
                kept, own_ns = _mirrored(namespace) - before, traffic.cpu_ns(wire.pid) - own_ns
                took_s, datagram_ns = begun.ended()
        finally:
            wire.terminate()
            said = wire.stderr.read() if wire.stderr else ""
    counts = [int(word.replace(",", "")) for word in said.split() if word.replace(",", "").isdigit()]
    sent, missing = (counts[0], sum(counts[1:])) if counts else (0, 0)
    return Figures(kept / took_s, missing / max(sent + missing, 1), own_ns / took_s / 1e9, datagram_ns)


def wait_for_wire(wire: subprocess.Popen[str]) -> None:
    """Return once ``hopscope wire`` sends.

    Raises
    ------
    ToolError
        It has ended.
    """
    if not any("Sending events" in line for line in iter(wire.stderr or ())):
        raise ToolError("hopscope wire did not start")


def _mirrored(namespace: Namespace) -> int:
    shown = namespace.run(["tc", "-s", "-j", "filter", "show", "dev", "hop0", "ingress"], capture_output=True)
    actions = [action for each in json.loads(shown.stdout) for action in each.get("options", {}).get("actions", ())]
    return sum(int(action["stats"]["packets"]) for action in actions)


class _Begun:
    """The flood from one moment on."""

    def __init__(self, namespace: Namespace, pids: Sequence[int]) -> None:
        self._namespace, self._pids = namespace, pids
        self._received, self._cpu_ns, self.at_s = self._now()

    def ended(self) -> tuple[float, float]:
        """Return how long it was, and the CPU time of both ends for each datagram."""
        received, cpu_ns, at_s = self._now()
        return at_s - self.at_s, (cpu_ns - self._cpu_ns) / max(received - self._received, 1)

    def _now(self) -> tuple[int, int, float]:
        received = traffic.received(self._namespace.pid, "udp")
        return received, sum(map(traffic.cpu_ns, self._pids)), time.monotonic()
