# SPDX-License-Identifier: Apache-2.0
"""All events in chronological order, as text. The SQL engine formats the lines: no Python code runs per event."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from hopscope.model.report import of_rows
from hopscope.term import format as fmt
from hopscope.trace.clock_bounds import order_bound_ns
from hopscope.trace.events import each_slice, notes, own_tables, prepare, rows, slices
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.relation import build
from hopscope.verbs.report.event_lines import (
    COLUMNS,
    CSV_HEADING,
    NAMES,
    TABLES,
    finished,
    joins,
    joins_of_fields,
    line_of,
    line_of_fields,
)

if TYPE_CHECKING:
    from hopscope.model.report import Column, Report, Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.report.event_lines import Form

# Events of the trace's own tables follow those of probe points with the same time.
_AFTER_POINTS: Final = 10_000


def write_events(
    trace: Trace, selection: Selection, form: Form, out: BinaryIO, *, limit: int | None = None
) -> list[str]:
    """Write a line for each event.

    Parameters
    ----------
    trace, selection
        The trace, and the events to list. A flow's events are those of its sockets and packets, at any point; a
        process's events are those of its sockets' flows, and of its threads.
    form
        ``text``: time since the start in s, CPU, probe point, thread, device, flow and details;
        ``json``: one object per line; ``csv``: with a header.
    out
        The output stream.
    limit
        Maximum number of lines.

    Returns
    -------
    list of str
        Sentences about missing events.
    """
    build(trace, *NAMES)
    prepare(trace, selection)
    if form == "csv":
        out.write(f"{CSV_HEADING}\n".encode())
    left = limit
    bound_ns = order_bound_ns(trace)
    for slice_ns in each_slice(trace, selection):
        query = _query(trace, selection, form, slice_ns, bound_ns)
        written = trace.copy_lines(query if left is None else f"{query} LIMIT {left}", out)
        if left is not None:
            left -= written
            if left <= 0:
                break
    return [*notes(trace, selection), *_order_notes(bound_ns)]


def write_parquet(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None = None) -> list[str]:
    """Write a Parquet file with the columns of CSV, in their own types.

    Parameters and what it returns are those of :func:`write_events`.
    """
    build(trace, *NAMES)
    prepare(trace, selection)
    bound_ns = order_bound_ns(trace)
    periods = slices(trace, selection) or [(0, 0)]
    query = _query(trace, selection, "parquet", (periods[0][0], periods[-1][1]), bound_ns)
    trace.copy_parquet(query if limit is None else f"{query} LIMIT {limit}", out)
    return notes(trace, selection)


def event_report(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return the events as a report of Python values, which take some kilobytes per event.

    Parameters
    ----------
    trace, selection, limit
        As for :func:`write_events`.
    """
    lines = io.BytesIO()
    missing = write_events(trace, selection, "json", lines, limit=limit)
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    values = [[_value(event, column) for column in COLUMNS] for event in events]
    return of_rows("events", COLUMNS, values, notes=missing)


def _value(event: dict[str, Any], column: Column) -> Value:
    """Return an event's value in a column: an identifier is a string in JSON, and a number in a report."""
    value: Value = event.get(column.name)
    return int(value) if column.unit == "id" and value is not None else value


def _order_notes(bound_ns: int | None) -> list[str]:
    if bound_ns is None:
        return []
    return [f"~: the order relative to events of other hosts within {fmt.time(bound_ns)} is not certain"]


def _query(trace: Trace, selection: Selection, form: Form, slice_ns: tuple[int, int], bound_ns: int | None) -> str:
    """Return the query for the lines of a slice; ties in time are resolved deterministically.

    `bound_ns`: see :func:`order_bound_ns`. Events that are as close to the slice decide whether the order is certain.
    """
    first_ns, until_ns = slice_ns
    inside = f"time_ns >= {first_ns} AND time_ns < {until_ns}"
    lines = _lines(
        trace,
        selection,
        form,
        f"time_ns >= {first_ns - (bound_ns or 0)} AND time_ns < {until_ns + (bound_ns or 0)}"
        f" AND {selection.window(trace)}",
    )
    if bound_ns is not None:
        host = host_of_cpu("cpu")
        near = f"OVER (ORDER BY time_ns RANGE BETWEEN {bound_ns} PRECEDING AND {bound_ns} FOLLOWING)"
        lines = f"SELECT *, min({host}) {near} <> max({host}) {near} AS uncertain FROM ({lines}) n"
    ordered = f"FROM ({lines}) l WHERE {inside} ORDER BY l.time_ns, l.cpu, l.point"
    return f"SELECT {finished(form, bound_ns)} {ordered}"


def _lines(trace: Trace, selection: Selection, form: Form, window: str) -> str:
    """Return the query for the lines of a period, with the columns by which they are sorted."""
    started_ns = trace.metadata.started_ns
    lines = [
        f"SELECT e.time_ns, e.cpu, e.point, {line_of(form, table, started_ns)} AS line"
        f" FROM ({rows(trace, selection, table, window)}) e"
        f" {joins(table)}"
        for table in TABLES
    ]
    lines += [
        f"SELECT e.time_ns, e.cpu, {_AFTER_POINTS + place} AS point, {line_of_fields(form, table, started_ns)} AS line"
        f" FROM ({rows(trace, selection, table.name, window)}) e"
        f" {joins_of_fields()}"
        for place, table in enumerate(own_tables(trace))
    ]
    return " UNION ALL ".join(lines)
