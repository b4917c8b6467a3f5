# SPDX-License-Identifier: Apache-2.0
"""``throughput``: what applications lose while ``hopscope rx`` runs with all hops, and while bpftrace does.

TCP throughput, rate of UDP datagrams and request/response times on lo, under five conditions that take turns: nothing
attached; empty programs on the hooks of ``rx``, which is what the kernel's way to call a program costs alone; ``rx``
(the command itself, reader and all); ``rx --budget 0.5``; bpftrace. A change is that against nothing in the same round.

Once with both ends on one CPU and by its CPU time, where every nanosecond of both ends shows and nothing else does, and
once with an end on each of two, by the clock.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench import tools, traffic
from bench.changes import Metric, changes_table
from bench.floor import Floor
from bench.measure import turns
from hopscope.lab import Namespace
from hopscope.probes.catalogue.rx import RX
from hopscope.probes.resolve import Plan, Resolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.changes import Figures

ROUNDS: Final = 10
CONDITIONS: Final = ("off", "empty", "rx", "budget", "bpftrace")
_LOAD_S: Final = 1.0


METRICS: Final = {
    "tcp_cpu": Metric("TCP, Gbit per CPU s", 1e9 / 8, ".2f", {"rx": "-5", "budget": "-1"}),
    "udp_cpu": Metric("UDP, k per CPU s", 1e3, ".0f", {"rx": "-8", "budget": "-1"}),
    "tcp": Metric("TCP, Gbit/s", 1e9 / 8, ".2f", {"rx": "-5", "budget": "-1"}),
    "udp": Metric("UDP received, k/s", 1e3, ".0f", {"rx": "-8", "budget": "-1"}),
    "udp_sent": Metric("UDP sent, k/s", 1e3, ".0f"),
    "p50": Metric("request/response p50, us", 1e3, ".1f"),
    "p99": Metric("request/response p99, us", 1e3, ".1f", {"rx": "+6", "budget": "+2"}),
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    for cpus, title in ((1, "both ends on one CPU"), (2, "an end on each of two CPUs")):
        with Namespace() as namespace, TemporaryDirectory(prefix="hopscope-bench-") as scratch:
            floor = Floor(Path(scratch), "rx", Plan(Resolver(), RX).programs())
            measured = [
                {name: _figures(namespace, floor, name, cpus) for name in order} for order in turns(CONDITIONS, rounds)
            ]
        yield f"{title}; median of {rounds} rounds of {_LOAD_S} s, change in % against off\n"
        yield changes_table(measured, METRICS) + "\n\n"


def _condition(floor: Floor, name: str) -> AbstractContextManager[object]:
    if name == "off":
        return nullcontext()
    return floor.attached() if name == "empty" else tools.running(tools.RX_TOOLS[name])


def _figures(namespace: Namespace, floor: Floor, name: str, cpus: int) -> Figures:
    with _condition(floor, name):
        rates = _rates_on_one(namespace) if cpus == 1 else _rates_on_two(namespace)
        asked = traffic.ask(namespace, _LOAD_S, cpus=cpus)
    return rates | {"p50": asked.rtt_p50_ns, "p99": asked.rtt_p99_ns}


def _rates_on_one(namespace: Namespace) -> Figures:
    return {f"{load}_cpu": traffic.per_cpu_second(namespace, load, _LOAD_S) for load in traffic.LOADS}


def _rates_on_two(namespace: Namespace) -> Figures:
    stream = traffic.stream(namespace, _LOAD_S)
    flood = traffic.flood(namespace, _LOAD_S)
    return {"tcp": stream.bytes_per_s, "udp": flood.received_per_s, "udp_sent": flood.sent_per_s}
