# SPDX-License-Identifier: Apache-2.0
"""``transmit``: what applications lose while ``hopscope tx`` runs, whether it follows their flows or others.

TCP streams of large and of small sends, and request/response, on lo, under conditions that take turns. A change is that
against nothing attached in the same round. Nothing attached is measured twice: how much the second differs from the
first (``again``) is the noise that the others must be held against.

Another flow runs beside under every condition, slowly, in a network namespace of its own. Under ``other flow`` that one
is selected, and what is measured is not; ``everything`` is the same by hooks that every packet of the host passes, as
is ``bpftrace`` with a filter of its own. ``application`` has its own sends stamped by SO_TIMESTAMPING and reads the
stamps.

Once with both ends on one CPU and by its CPU time, where every nanosecond of both ends shows and nothing else does, and
once with an end on each of two, by the clock.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from socket import htons
from typing import TYPE_CHECKING, Final

from bench import tools, traffic
from bench.changes import OFF, Metric, changes_table
from bench.measure import turns
from bench.traffic import TrafficSetup
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.changes import Figures

ROUNDS: Final = 10
AGAIN: Final = "again"
APPLICATION: Final = "application"
_LOAD_S: Final = 0.7
_PORT: Final = 7001
_BESIDE_PORT: Final = 7002
BESIDE: Final = TrafficSetup(_BESIDE_PORT, ("--size", 1024, "--rate", 200))
_ASKED_BYTES: Final = 64
_SIZES: Final = {"large": 64 << 10, "small": 1 << 10}


def _tx(port: int, *options: str) -> tools.Tool:
    return tools.hopscope("tx", "--port", str(port), *options, hops=("tx.sched", "tx.total"))


TOOLS: Final = {
    "selected": _tx(_PORT),
    "1 in 64": _tx(_PORT, "--sample", "64"),
    "all hops": _tx(_PORT, "--hooks", "host"),
    "other flow": _tx(_BESIDE_PORT),
    "everything": _tx(_BESIDE_PORT, "--attach", "tx.sched=tp_btf:net_dev_queue"),
    "bpftrace": tools.bpftrace("tx.bt", str(_BESIDE_PORT), str(htons(_BESIDE_PORT)), maps=("driver", "ack")),
}
CONDITIONS: Final = (OFF, AGAIN, *TOOLS, APPLICATION)
_WANTED: Final = {"selected": "-5", "1 in 64": "-1", "other flow": f"as {AGAIN}"}
METRICS: Final = {
    "large_cpu": Metric("64 KiB sends, Gbit/CPU s", 1e9 / 8, ".2f", _WANTED),
    "small_cpu": Metric("1 KiB sends, Gbit/CPU s", 1e9 / 8, ".2f"),
    "large": Metric("64 KiB sends, Gbit/s", 1e9 / 8, ".2f", _WANTED),
    "small": Metric("1 KiB sends, Gbit/s", 1e9 / 8, ".2f"),
    "p50": Metric("request/response p50, us", 1e3, ".1f"),
    "p99": Metric("request/response p99, us", 1e3, ".1f"),
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    for cpus, title in ((1, "both ends on one CPU"), (2, "an end on each of two CPUs")):
        with Namespace() as namespace, Namespace() as other, traffic.beside(other, BESIDE):
            measured = [{name: figures(namespace, name, cpus) for name in order} for order in turns(CONDITIONS, rounds)]
        yield f"{title}; median of {rounds} rounds of {_LOAD_S} s, change in % against off\n"
        yield changes_table(measured, METRICS) + "\n\n"


def setup(name: str, size_bytes: int) -> TrafficSetup:
    """Return how the traffic goes that is measured under a condition."""
    return TrafficSetup(_PORT, ("--size", size_bytes, *(("--stamped",) if name == APPLICATION else ())))


def _condition(name: str) -> AbstractContextManager[object]:
    return tools.running(TOOLS[name]) if name in TOOLS else nullcontext()


def figures(namespace: Namespace, name: str, cpus: int) -> Figures:
    """Measure under one condition.

    Raises
    ------
    ToolError
        A tool saw nothing of what it was to follow.
    """
    with _condition(name):
        rates = {}
        for size, size_bytes in _SIZES.items():
            if cpus == 1:
                per_s = traffic.per_cpu_second(namespace, "tcp", _LOAD_S, setup=setup(name, size_bytes))
                rates[f"{size}_cpu"] = per_s
            else:
                rates[size] = traffic.stream(namespace, _LOAD_S, setup=setup(name, size_bytes)).bytes_per_s
        asked = traffic.ask(namespace, _LOAD_S, cpus=cpus, setup=setup(name, _ASKED_BYTES))
    return rates | {"p50": asked.rtt_p50_ns, "p99": asked.rtt_p99_ns}
