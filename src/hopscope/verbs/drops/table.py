# SPDX-License-Identifier: Apache-2.0
"""Dropped packets as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hopscope.term import format as fmt
from hopscope.term.footer import closing
from hopscope.term.grid import Column, render_grid

if TYPE_CHECKING:
    from hopscope.model.drops import DropSnapshot
    from hopscope.term.terminal import Terminal


def render_drops(snapshot: DropSnapshot, terminal: Terminal, limit: int | None) -> str:
    """Return heading, table and footer as lines without a line end after the last; at most `limit` rows, None: all."""
    start = datetime.fromtimestamp(snapshot.started_ns // 10**9, UTC)
    length = fmt.time(snapshot.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if snapshot.kind == "total" else length
    heading = f"drops  {start:%Y-%m-%d %H:%M:%S} UTC  {what}  {fmt.plural(snapshot.dropped, 'packet')}"
    lines = [terminal.paint(line, "dim") for line in terminal.fold(heading)]
    shown = snapshot.rows[:limit]
    if shown:
        groups = list(shown[0].group)
        table = [
            Column("packets", [fmt.count(row.count) for row in shown]),
            Column("/s", [fmt.rate(row.count / snapshot.duration_s) for row in shown], rank=2),
            *(Column(group, [row.group[group] for row in shown], left=True) for group in groups),
        ]
        lines += render_grid(table, terminal)
    else:
        lines += terminal.fold("No packets were dropped.")
    left_out = len(snapshot.rows) - len(shown)
    if left_out:
        rest = snapshot.dropped - sum(row.count for row in shown)
        lines += terminal.fold(f"and {left_out:,} more with {fmt.plural(rest, 'packet')} (--limit)")
    return "\n".join(lines + _footer(snapshot, terminal))


def _footer(snapshot: DropSnapshot, terminal: Terminal) -> list[str]:
    warnings = []
    if snapshot.lost:
        warnings.append(f"lost: {fmt.plural(snapshot.lost, 'record')}, each of which may have been a drop")
    return closing(snapshot.overhead, terminal, warnings, [f"note: {note}" for note in snapshot.notes])
