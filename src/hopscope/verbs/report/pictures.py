# SPDX-License-Identifier: Apache-2.0
"""What ``--plot`` draws of the reports ``messages`` and ``compare``: the rows that are printed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from hopscope.term.compare_svg import Change, render_changes
from hopscope.term.waterfall_svg import Bar, Waterfall, render_waterfalls
from hopscope.trace.messages.path import BY_COLUMN
from hopscope.verbs.report.messages_text import stages_of, title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.report import Report, Value


_MOST_MESSAGES: Final = 100


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
