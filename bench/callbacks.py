# SPDX-License-Identifier: Apache-2.0
"""``callbacks``: whose sends run the BPF programs of ``tx``, and what a run costs.

By the kernel's own statistics (BPF_ENABLE_STATS), under a saturating TCP stream on lo that is selected or not. The
statistics count every run; the programs' time has two looks at the clock of the statistics' own in each.

A connection that is not selected does run a program while it is set up: the cgroup's hook is where the choice is made.
Here it is up before the count begins, and what counts is its sends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.hits import costs
from bench.measure import Spread, table, turns
from bench.traffic import TrafficSetup, received, saturated
from hopscope.lab import Namespace
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.hits import Cost

ROUNDS: Final = 8
SIZES: Final = {"64 KiB": 64 << 10, "1 KiB": 1 << 10}
_WINDOW_S: Final = 0.5
_SETTLE_S: Final = 0.2
_PORT: Final = 7001
_MEASURED: Final = (_PORT,)
_OTHER: Final = (7002,)
OTHER: Final = {
    "other flow": TxOptions(ports=_OTHER),
    "everything": TxOptions(ports=_OTHER, ways={"tx.sched": "tp_btf:net_dev_queue"}),
}
SELECTED: Final = {
    "selected": TxOptions(ports=_MEASURED),
    "1 in 64": TxOptions(ports=_MEASURED, sample=64),
    "all hops": TxOptions(ports=_MEASURED, flow_hooks=False),
}


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen in one: messages of the stream per second, and the cost of each program that ran."""

    messages_per_s: float
    programs: Mapping[str, Cost]


Windows = dict[str, Window]


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with Namespace() as namespace:
        for size, size_bytes in SIZES.items():
            with saturated(namespace, "tcp", setup=TrafficSetup(_PORT, ("--size", size_bytes))):
                measured = [
                    {name: window(namespace, name, size_bytes) for name in order}
                    for order in turns([*OTHER, *SELECTED], rounds)
                ]
            yield f"TCP stream of {size} sends, median of {rounds} windows of {_WINDOW_S} s\n"
            yield runs_table(measured) + "\n" + silence(measured) + "\n\n" + programs_table(measured) + "\n\n"


def window(namespace: Namespace, name: str, size_bytes: int) -> Window:
    """Look at a stream of sends of one size, for a moment."""
    with TxCollector((OTHER | SELECTED)[name]) as tx:
        time.sleep(_SETTLE_S)
        tx.interval()
        before, before_s = received(namespace.pid, "tcp"), time.perf_counter()
        tx.measure_cost(_WINDOW_S)
        snapshot = tx.interval()
        messages = (received(namespace.pid, "tcp") - before) / size_bytes
        return Window(messages / (time.perf_counter() - before_s), costs(snapshot.overhead, snapshot.duration_s))


def runs_table(rounds: Sequence[Windows]) -> str:
    """Lay out how often programs ran, all together; 0 is none at all."""
    rows = []
    for name in rounds[0]:
        sent = Spread.of(windows[name].messages_per_s / 1e3 for windows in rounds)
        runs = Spread.of(sum(cost.per_s for cost in windows[name].programs.values()) for windows in rounds)
        spent = Spread.of(
            sum(cost.per_s * cost.ns for cost in windows[name].programs.values()) / windows[name].messages_per_s
            for windows in rounds
        )
        rows.append([name, sent.shown(), runs.shown(".0f"), spent.shown()])
    return table(("stream is", "k messages/s", "runs/s", "ns a message"), rows)


def silence(rounds: Sequence[Windows]) -> str:
    """Say in how many windows the stream that is not selected ran nothing: one suffices, for it sends in all."""
    silent = sum(not windows["other flow"].programs for windows in rounds)
    return f"other flow: no run at all in {silent} of {len(rounds)} windows (the host's new connections make some)"


def programs_table(rounds: Sequence[Windows]) -> str:
    """Lay out the programs that ran for a selected stream."""
    rows = []
    for name in SELECTED:
        for program in sorted({program for windows in rounds for program in windows[name].programs}):
            ran = [windows[name] for windows in rounds if program in windows[name].programs]
            per_message = Spread.of(each.programs[program].per_s / each.messages_per_s for each in ran)
            spent = Spread.of(each.programs[program].ns for each in ran)
            rows.append([name, program, per_message.shown(".2f"), spent.shown(".0f")])
    return table(("", "program", "runs a message", "ns a run"), rows, names=2)
