# SPDX-License-Identifier: Apache-2.0
"""``hits``: what one run of each BPF program of ``rx`` costs, over an empty program on the same hook.

By the kernel's own statistics (BPF_ENABLE_STATS), under a saturating TCP stream and a flood of small datagrams, on lo.
Windows with the empty programs, with ``rx``, and with ``rx`` grouped by interface take turns under the same traffic.
The statistics' own two looks at the clock are in both, so that the difference is without them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.floor import Floor
from bench.measure import Spread, table, turns
from bench.traffic import LOADS, saturated
from hopscope.lab import Namespace
from hopscope.live.cost import CostMeter
from hopscope.probes.catalogue.rx import RX
from hopscope.probes.resolve import Plan, Resolver
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hopscope.model.snapshot import Overhead
    from hopscope.verbs.cpu.collector import CpuCollector

ROUNDS: Final = 8
_WINDOW_S: Final = 0.6
# For caches, and for sockets to have their state.
_SETTLE_S: Final = 0.2
_VARIANTS: Final = ("floor", "plain", "grouped")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one program in one window: runs per second, and mean ns a run."""

    per_s: float
    ns: float


Window = dict[str, Cost]
Collectors = dict[str, "Callable[[], RxCollector | CpuCollector]"]
_COLLECTORS: Final[Collectors] = {
    "plain": lambda: RxCollector(RxOptions()),
    "grouped": lambda: RxCollector(RxOptions(group_by="interface")),
}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    overs, groupings = [], []
    with Namespace() as namespace, TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        floor = Floor(Path(scratch), "rx", Plan(Resolver(), RX).programs())
        for load, title in LOADS.items():
            with saturated(namespace, load):
                rounds_taken = measured(floor, _COLLECTORS, rounds)
            yield f"{title}, median of {rounds} windows of {_WINDOW_S} s\n"
            yield programs_table(rounds_taken) + "\n"
            over, grouping = overall(rounds_taken)
            yield summary(over, grouping) + "\n\n"
            overs += over
            groupings += grouping
    yield "both loads\n" + summary(overs, groupings) + "\n"
    yield "wanted: at most 70 over an empty program, at most 30 more grouped by interface\n"


def over_floor(window: Window, floor: Window, weights: Window) -> float:
    """Return the mean of ns over the floor, weighted by how often each program of `weights` ran; nan if none did."""
    both = [name for name in weights if name in window and name in floor]
    runs = sum(weights[name].per_s for name in both)
    if not runs:
        return float("nan")
    return sum(weights[name].per_s * (window[name].ns - floor[name].ns) for name in both) / runs


def overall(rounds: Iterable[Mapping[str, Window]]) -> tuple[list[float], list[float]]:
    """Return for each round ns over the floor without grouping, and how much more they are with it."""
    over, grouping = [], []
    for windows in rounds:
        plain = over_floor(windows["plain"], windows["floor"], windows["plain"])
        over.append(plain)
        grouping.append(over_floor(windows["grouped"], windows["floor"], windows["plain"]) - plain)
    return over, grouping


def summary(over: Iterable[float], grouping: Iterable[float], by: str = "interface") -> str:
    """Return the two lines that count."""
    return (
        f"all programs, weighted by hits: {Spread.of(over).shown()} ns over the empty ones\n"
        f"{f'grouped by {by}:':<31} {Spread.of(grouping).shown('+.1f')} ns more"
    )


def programs_table(rounds: Sequence[Mapping[str, Window]]) -> str:
    """Lay out the programs, the one that costs most in all first."""
    rows = []
    for name in sorted({name for windows in rounds for name in windows["plain"]}):
        full = [windows for windows in rounds if all(name in windows[variant] for variant in _VARIANTS)]
        if not full:
            continue
        per_s = Spread.of(windows["plain"][name].per_s for windows in full).median
        over = Spread.of(windows["plain"][name].ns - windows["floor"][name].ns for windows in full)
        cells = [f"{Spread.of(windows[variant][name].ns for windows in full).median:.0f}" for variant in _VARIANTS]
        rows.append((per_s * over.median, [name, f"{per_s / 1e3:.1f}", *cells, over.shown(".0f")]))
    rows.sort(key=lambda row: row[0], reverse=True)
    head = ("program", "k hits/s", "empty", "ns/hit", "grouped", "over the empty one")
    return table(head, [cells for _, cells in rows])


def measured(floor: Floor, collectors: Collectors, rounds: int) -> list[dict[str, Window]]:
    """Measure the empty programs and those of the collectors, in turns."""
    return [{variant: _window(floor, collectors, variant) for variant in order} for order in turns(_VARIANTS, rounds)]


def _window(floor: Floor, collectors: Collectors, variant: str) -> Window:
    if variant == "floor":
        with floor.attached() as programs:
            time.sleep(_SETTLE_S)
            meter = CostMeter(programs)
            before = meter.read()
            meter.sample(_WINDOW_S)
            after = meter.read()
            return costs(meter.overhead(before, after), after.at_s - before.at_s)
    with collectors[variant]() as collector:
        time.sleep(_SETTLE_S)
        collector.interval()
        collector.measure_cost(_WINDOW_S)
        snapshot = collector.interval()
        return costs(snapshot.overhead, snapshot.duration_s)


def costs(overhead: Overhead, duration_s: float) -> Window:
    """Return the cost of each program that ran."""
    return {
        cost.name: Cost(cost.hits / duration_s, cost.ns_per_hit)
        for cost in overhead.by_program
        if cost.ns_per_hit is not None
    }
