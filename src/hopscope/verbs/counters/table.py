# SPDX-License-Identifier: Apache-2.0
"""Counters that moved, as a table by layer and as JSON; ``docs/json/hopscope.counters-1.schema.json`` describes that.

Columns stand where they are in every report, so that the eye finds them: what comes and goes are lines.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.counters.sources import SOURCES
from hopscope.term import format as fmt
from hopscope.term.json_lines import VERSION, Json, iso
from hopscope.term.terminal import columns, pad

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.counters.rows import CounterRow, CounterSnapshot
    from hopscope.term.terminal import Terminal


class _Column(NamedTuple):
    title: str
    width: int


# From right to left they are left out where the terminal is too narrow.
_COLUMNS: Final = (_Column("count", 11), _Column("/s", 7), _Column("total", 11), _Column("", 13))
_MARK_WIDTH: Final = 2
# Of a counter's name: the longest of the kernel has 33 letters, drivers' have 31.
_NAME_LEAST: Final = 24
_NAME_MOST: Final = 40
_LOSS, _BAD = "!", "~"
_LEGEND: Final = {_LOSS: "loss or refusal", _BAD: "a sign of trouble"}


def render_counters(snapshot: CounterSnapshot, terminal: Terminal, moved_by: str = "") -> str:
    """Return heading, table and footer as lines without a line end after the last.

    Parameters
    ----------
    moved_by
        The command that ran meanwhile.
    """
    start = datetime.fromtimestamp(snapshot.started_ns // 10**9, UTC)
    length = fmt.time(snapshot.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if snapshot.kind == "total" else length
    moved = sum(row.count != 0 for row in snapshot.rows) + snapshot.left_out
    heading = f"counters  {start:%Y-%m-%d %H:%M:%S} UTC  {what}  {moved:,} of {snapshot.read:,} increased"
    lines = [terminal.paint(line, "dim") for line in terminal.fold(heading)]
    if snapshot.filters:
        only = " ".join(f"{name}={value}" for name, value in snapshot.filters.items())
        lines += [terminal.paint(line, "dim") for line in terminal.fold(f"only {only}")]
    if moved_by:
        # A script may have many lines; its beginning will do.
        shown = terminal.cut(" ".join(moved_by.split()), terminal.width - len("while  ran"))
        lines.append(terminal.paint(f"while {shown} ran", "dim"))
    if snapshot.rows:
        lines += _table(snapshot, terminal)
    else:
        lines += terminal.fold("No counter increased.")
    return "\n".join(lines + _footer(snapshot, terminal))


def counters_to_json(snapshot: CounterSnapshot) -> Json:
    """Return a snapshot as the object that schema ``hopscope.counters/1`` describes."""
    return {
        "schema": f"hopscope.counters/{VERSION}",
        "kind": snapshot.kind,
        "time": iso(snapshot.started_ns),
        "interval_s": snapshot.duration_s,
        "read": snapshot.read,
        "left_out": snapshot.left_out,
        "rows": [_row_to_json(row, snapshot.duration_s) for row in snapshot.rows],
        "filters": dict(snapshot.filters),
        "reader_cpu_percent": snapshot.reader_cpu_percent,
        "notes": list(snapshot.notes),
    }


def _row_to_json(row: CounterRow, duration_s: float) -> Json:
    return {
        "layer": row.layer,
        "netns": row.netns or None,
        "namespace": row.namespace,
        "source": row.source,
        "subject": row.subject,
        "name": row.name,
        "kind": "level" if row.level else "counter",
        "count": row.count,
        "per_s": None if row.level or not duration_s else row.count / duration_s,
        "total": row.now,
        "by_cpu": dict(row.by_cpu),
        "event": row.event or None,
        "sign": row.sign,
    }


def _table(snapshot: CounterSnapshot, terminal: Terminal) -> Iterator[str]:
    shown = list(_COLUMNS)
    while shown[1:] and terminal.width - _MARK_WIDTH - sum(1 + each.width for each in shown) < _NAME_LEAST:
        shown.pop()
    name_width = min(terminal.width - _MARK_WIDTH - sum(1 + each.width for each in shown), _NAME_MOST)
    titles = [each.title.rjust(each.width) for each in shown]
    yield terminal.paint(" ".join([" " * (_MARK_WIDTH + name_width), *titles]).rstrip(), "dim")
    for head, rows in groupby(snapshot.rows, lambda row: _head(row, terminal)):
        yield head
        for row in rows:
            cells = [_count(row), _rate(row, snapshot.duration_s), _fit(row.now, 11), _remark(row)]
            name = pad(terminal.cut(row.name, name_width), name_width)
            # Numbers stand at the right, the remark at the left of its column.
            texts = [
                cell.rjust(column.width) if column.title else " " + cell
                for cell, column in zip(cells, shown, strict=False)
            ]
            line = " ".join([f"{_mark(row):<2}{name}", *texts]).rstrip()
            look = "warn" if row.is_loss else ""
            yield terminal.paint(line, look) if look else line


def _head(row: CounterRow, terminal: Terminal) -> str:
    """Return the line over the counters of one thing: its layer, which it is, whose, and who else shows them."""
    where = "" if not row.netns else f"in {row.namespace}"
    seen = SOURCES[row.source].seen_with
    parts = [row.layer, row.subject, where]
    text = terminal.cut("  ".join(filter(None, parts)), terminal.width)
    rest = terminal.width - columns(text) - 4
    tail = f"  ({seen})" if len(seen) <= rest else ""
    return terminal.paint(text, "bold") + terminal.paint(tail, "dim")


def _mark(row: CounterRow) -> str:
    return _LOSS if row.is_loss else _BAD if row.is_bad else ""


def _count(row: CounterRow) -> str:
    sign = "" if not row.level else "-" if row.count < 0 else "+" if row.count else ""
    return sign + _fit(abs(row.count), 10 if sign else 11)


def _rate(row: CounterRow, duration_s: float) -> str:
    return "" if row.level or not duration_s else fmt.rate(row.count / duration_s)


def _remark(row: CounterRow) -> str:
    if row.event:
        return row.event
    if len(row.by_cpu) and row.count > 0 and not row.level:
        cpu, count = max(row.by_cpu.items(), key=lambda item: item[1])
        return f"{cpu} {fmt.part(count / row.count)}" if cpu != "total" else ""
    return "level" if row.level else ""


def _fit(number: int, width: int) -> str:
    """Return a number as it is, or scaled where there is no room for that."""
    text = f"{number:,}"
    return text if len(text) <= width else fmt.count(number)


def _footer(snapshot: CounterSnapshot, terminal: Terminal) -> list[str]:
    lost = list(dict.fromkeys(row.layer for row in snapshot.rows if row.is_loss))
    marks = {_mark(row) for row in snapshot.rows}
    warnings = [f"lost at: {', '.join(lost)}"] if lost else []
    warnings += snapshot.notes
    more = snapshot.left_out
    texts = [f"and {more:,} more for timers, memory and the like (--all)"] if more else []
    texts += [f"cost: {fmt.per_cent(snapshot.reader_cpu_percent)} reader"]
    legend = [f"{mark} {meaning}" for mark, meaning in _LEGEND.items() if mark in marks]
    if legend:
        texts.append("; ".join([*legend, "hopscope counters explain NAME"]))
    lines = [terminal.paint(line, "warn") for text in warnings for line in terminal.fold(text)]
    return lines + [terminal.paint(line, "dim") for text in texts for line in terminal.fold(text)]
