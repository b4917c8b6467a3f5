# SPDX-License-Identifier: Apache-2.0
"""Counts of events as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hopscope.term import format as fmt
from hopscope.term.footer import closing
from hopscope.term.grid import Column, render_grid

if TYPE_CHECKING:
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.count.snapshot import CountSnapshot


def render_counts(snapshot: CountSnapshot, terminal: Terminal, limit: int | None) -> str:
    """Return heading, table and footer as lines without a line end after the last; at most `limit` rows, None: all."""
    start = datetime.fromtimestamp(snapshot.started_ns // 10**9, UTC)
    length = fmt.time(snapshot.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if snapshot.kind == "total" else length
    total = sum(event.count for event in snapshot.events)
    heading = f"count  {start:%Y-%m-%d %H:%M:%S} UTC  {what}  {fmt.plural(total, 'event')}"
    lines = [terminal.paint(line, "dim") for line in terminal.fold(heading)]
    rows = [(count, event.event, group) for event in snapshot.events for group, count in event.groups.items()]
    if not snapshot.group_by:
        rows += [(0, event.event, "") for event in snapshot.events if not event.groups]
    rows.sort(key=lambda row: -row[0])
    shown = rows[:limit]
    if shown:
        table = [
            Column("count", [fmt.count(count) for count, _, _ in shown]),
            Column("/s", [fmt.rate(count / snapshot.duration_s) for count, _, _ in shown], rank=2),
            Column("event", [event for _, event, _ in shown], left=True),
        ]
        if snapshot.group_by:
            table.append(Column(snapshot.group_by, [group for _, _, group in shown], left=True))
        lines += render_grid(table, terminal)
    else:
        lines += terminal.fold("None of the events happened.")
    left_out = rows[len(shown) :]
    if left_out:
        rest = sum(count for count, _, _ in left_out)
        lines += terminal.fold(f"and {len(left_out):,} more with {fmt.plural(rest, 'event')} (--limit)")
    return "\n".join(lines + _footer(snapshot, terminal))


def _footer(snapshot: CountSnapshot, terminal: Terminal) -> list[str]:
    notes = [f"note: {note}" for note in snapshot.notes]
    if snapshot.overhead:
        return closing(snapshot.overhead, terminal, [], notes)
    return [terminal.paint(line, "dim") for text in notes for line in terminal.fold(text)]
