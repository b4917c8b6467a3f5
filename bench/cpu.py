# SPDX-License-Identifier: Apache-2.0
"""``cpu``: what applications lose to the accounting of ``cpu`` and to its looks at the stack, and while perf records.

A TCP stream, and UDP in datagrams that fill a packet, without GRO, between two network namespaces: over a veth pair,
and over two with a bridge between. The conditions take turns; a change is that against nothing attached in the same
round. Nothing attached is measured twice: how much the second differs from the first (``again``) is the noise that the
others must be held against. ``empty`` are programs that do nothing on the hooks of the accounting: what the kernel's
way to call a program costs alone.

Once with both ends on one CPU and by its CPU time, where every nanosecond of both ends shows and nothing else does, and
once with an end on each of two, by the clock.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench import hits, processing, tools, traffic
from bench.changes import OFF, Metric, changes_table
from bench.floor import Floor
from bench.measure import table, turns
from bench.reader import watched
from bench.traffic import TrafficSetup
from hopscope.lab import Lab
from hopscope.lab.veth import SERVER_IPV4
from hopscope.probes.catalogue import POINTS
from hopscope.verbs.cpu import uring as cpu_uring
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.changes import Figures

ROUNDS: Final = 8
_LOAD_S: Final = 0.7
_WATCH_S: Final = 5
_PERF_HZ: Final = 999
NETS: Final = {"veth": False, "veth, bridge, veth": True}
_SENDERS: Final[dict[str, tuple[str | float, ...]]] = {"tcp": (), "udp": ("--size", 1470)}
_ACCOUNTED: Final = {"accounting": 0, "+ 1 kHz": 1_000, "+ 10 kHz": 10_000}
CONDITIONS: Final = (OFF, "again", "empty", *_ACCOUNTED, f"perf {_PERF_HZ} Hz")
_WANTED: Final = {"accounting": "-3", "+ 1 kHz": "-4", "+ 10 kHz": "-8"}
METRICS: Final = {
    "tcp_cpu": Metric("TCP, Gbit per CPU s", 1e9 / 8, ".2f", _WANTED),
    "udp_cpu": Metric("UDP, k per CPU s", 1e3, ".1f", _WANTED),
    "tcp": Metric("TCP, Gbit/s", 1e9 / 8, ".2f", _WANTED),
    "udp": Metric("UDP received, k/s", 1e3, ".1f", _WANTED),
    "udp_sent": Metric("UDP sent, k/s", 1e3, ".1f", _WANTED),
}
COLLECTORS: Final[hits.Collectors] = {
    "plain": lambda: CpuCollector(CpuOptions()),
    "grouped": lambda: CpuCollector(CpuOptions(group_by="process")),
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with TemporaryDirectory(prefix="hopscope-bench-") as folder:
        scratch = Path(folder)
        floor = Floor(scratch, "cpu", programs())
        conditions = [name for name in CONDITIONS if not name.startswith("perf") or shutil.which("perf")]
        if len(conditions) < len(CONDITIONS):
            yield "there is no perf here to compare with\n"
        for net, bridged in NETS.items():
            for cpus, title in ((1, "both ends on one CPU"), (2, "an end on each of two CPUs")):
                with Lab(bridged=bridged) as lab:
                    measured = [
                        {name: figures(lab, condition(name, floor, scratch), cpus) for name in order}
                        for order in turns(conditions, rounds)
                    ]
                yield f"{net}, {title}; median of {rounds} rounds of {_LOAD_S} s, change in % against off\n"
                yield changes_table(measured, METRICS) + "\n\n"
        with Lab() as lab:
            yield from _programs(lab, floor, rounds)
            yield from _readers(lab)
            yield from processing.run(lab.client, setup(lab, "tcp"), scratch, rounds)


def programs() -> dict[str, str]:
    """Return the programs that ``cpu`` attaches on this kernel where io_uring is not in use, and the kind of each."""
    with CpuCollector(CpuOptions()) as cpu:
        used = cpu.programs()
    seldom = {program for name in cpu_uring.NAMES for way in POINTS[name].ways for program in way.programs}
    return {program: kind for program, kind in used.items() if program not in seldom}


def setup(lab: Lab, load: str) -> TrafficSetup:
    """Return how a load goes from the client to the server."""
    return TrafficSetup(sender=_SENDERS[load], host=SERVER_IPV4, server=lab.server)


def condition(name: str, floor: Floor, scratch: Path) -> AbstractContextManager[object]:
    """Return what goes on during a measurement."""
    if name in _ACCOUNTED:
        return tools.running(tools.cpu(_ACCOUNTED[name]))
    if name.startswith("perf"):
        return tools.running(tools.perf(scratch / "perf.data", _PERF_HZ))
    return floor.attached() if name == "empty" else nullcontext()


def figures(lab: Lab, during: AbstractContextManager[object], cpus: int) -> Figures:
    """Measure under one condition.

    Raises
    ------
    ToolError
        A tool saw nothing of what it was to follow.
    """
    with during:
        if cpus == 1:
            return {
                f"{load}_cpu": traffic.per_cpu_second(lab.client, load, _LOAD_S, setup=setup(lab, load))
                for load in traffic.LOADS
            }
        stream = traffic.stream(lab.client, _LOAD_S, setup=setup(lab, "tcp"))
        flood = traffic.flood(lab.client, _LOAD_S, setup=setup(lab, "udp"))
    return {"tcp": stream.bytes_per_s, "udp": flood.received_per_s, "udp_sent": flood.sent_per_s}


def _programs(lab: Lab, floor: Floor, rounds: int) -> Iterator[str]:
    for load in traffic.LOADS:
        with traffic.saturated(lab.client, load, setup=setup(lab, load)):
            measured = hits.measured(floor, COLLECTORS, rounds)
        yield f"{load} over veth: each program, grouped by process or not, and an empty one; median of {rounds}\n"
        yield hits.programs_table(measured) + "\n" + hits.summary(*hits.overall(measured), by="process") + "\n\n"


def _readers(lab: Lab) -> Iterator[str]:
    rows = []
    for load in traffic.LOADS:
        with traffic.saturated(lab.client, load, setup=setup(lab, load)):
            for name, hz in _ACCOUNTED.items():
                cpu_percent, memory_mb = watched(tools.cpu(hz), _WATCH_S)
                rows.append([load, name, f"{cpu_percent:.2f}", f"{memory_mb:.0f}", "1" if hz == 1_000 else ""])
    yield f"the process that reads, over {_WATCH_S} s\n"
    yield table(("", "", "% of a core", "MB (RSS)", "wanted %"), rows, names=2) + "\n\n"
