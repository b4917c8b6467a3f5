# SPDX-License-Identifier: Apache-2.0
"""What ``--plot`` draws: rows of messages and comparisons that are printed, and flame graphs of drops and CPU time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.classify import Category
from hopscope.term.compare_svg import Change, render_changes
from hopscope.term.flamegraph import render_flamegraph
from hopscope.term.format import time
from hopscope.term.waterfall_svg import Bar, Waterfall, render_waterfalls
from hopscope.trace.activity import SOFTIRQS
from hopscope.trace.messages.path import BY_COLUMN
from hopscope.verbs.report.cpu import INTERRUPT, cpu_stacks
from hopscope.verbs.report.drops import drop_stacks
from hopscope.verbs.report.messages_text import stages_of, title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Report, Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection


_MOST_MESSAGES: Final = 100
# Which category's colour a softirq has; everything else are processes, which use sockets.
_SOFTIRQS: Final = {
    **dict.fromkeys(SOFTIRQS, "other"), "NET_RX": "receive_core", "NET_TX": "transmit_core", "SCHED": "scheduling",
}  # fmt: skip


def draw_messages(report: Report, of: str) -> str:
    """Return a waterfall a message, of the first hundred."""
    rows = islice(report.named_rows(), _MOST_MESSAGES)
    return render_waterfalls(f"messages of {of}", [_waterfall(row) for row in rows])


def _waterfall(row: Mapping[str, Value]) -> Waterfall:
    _, stages = stages_of(row)
    bars = [
        Bar(BY_COLUMN[each.column].title, each.after_ns, each.duration_ns, each.causes, each.told) for each in stages
    ]
    return Waterfall(title(row, unicode=True), int(row["total_ns"] or 0), bars)


def draw_changes(report: Report, before: str, after: str) -> str:
    """Return the median and the 99th percentile of each hop in two recordings."""
    changes = [
        Change(
            str(row["hop"]),
            str(row["verdict"]),
            *((float(row[f"{name}_before_ns"] or 0), float(row[f"{name}_after_ns"] or 0)) for name in ("p50", "p99")),
        )
        for row in report.named_rows()
    ]
    return render_changes(f"{before} → {after}", changes)


def draw_drops(trace: Trace, selection: Selection) -> str:
    """Return a flame graph of the stacks of drops.

    Raises
    ------
    UsageError
        There are none.
    """
    stacks = drop_stacks(trace, selection)
    if not stacks:
        raise UsageError(
            f"{trace.folder} has no stacks of drops in what was selected",
            "Record with `hopscope record -P drops --stacks`",
        )
    return render_flamegraph(f"drops of {trace.folder.resolve().name}", stacks)


def draw_cpu(trace: Trace, selection: Selection) -> str:
    """Return a flame graph of what was inside of what on each CPU.

    Raises
    ------
    UsageError
        Nothing of it was recorded in the selected period.
    """
    stacks = cpu_stacks(trace, selection)
    if not stacks:
        raise UsageError(f"{trace.folder} does not say what CPUs did in this period", "Record with `-P cpu`")
    return render_flamegraph(f"CPU time of {trace.folder.resolve().name}", stacks, category=_category, amount=time)


def _category(frames: Sequence[str]) -> Category:
    last = frames[-1]
    return Category("interrupt" if last.startswith(INTERRUPT) else _SOFTIRQS.get(last, "socket"), "")
