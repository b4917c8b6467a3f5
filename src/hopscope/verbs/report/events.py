# SPDX-License-Identifier: Apache-2.0
"""All events in chronological order, as text. The SQL engine formats the lines: no Python code runs per event."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from hopscope.model.report import of_rows
from hopscope.store.schema import BY_NAME
from hopscope.term import format as fmt
from hopscope.term.format import plural
from hopscope.trace.host_numbers import host_of_cpu, hosts
from hopscope.trace.packets.skb_lifetimes import addresses
from hopscope.trace.relation import SELECTION, build, columns, relation
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
    from hopscope.store.schema import Table
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection
    from hopscope.verbs.report.event_lines import Form

# Lines that are sorted in memory at a time, and the granularity of the slices of the run.
_SLICE_ROWS: Final = 1 << 20
_GRAIN_NS: Final = 1_000_000
# Events of the trace's own tables follow those of probe points with the same time.
_AFTER_POINTS: Final = 10_000
_PACKET_COLUMNS: Final = [column.name for column in BY_NAME["packets"].columns]


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
    if _has_flows(selection):
        build(trace, "wanted_packets", selection=selection)
    if form == "csv":
        out.write(f"{CSV_HEADING}\n".encode())
    left = limit
    bound_ns = _order_bound_ns(trace)
    for first_ns, until_ns in _slices(trace, selection):
        query = _query(trace, selection, form, (first_ns, until_ns), bound_ns)
        written = trace.copy_lines(query if left is None else f"{query} LIMIT {left}", out)
        if left is not None:
            left -= written
            if left <= 0:
                break
    return [*_notes(trace, selection), *_order_notes(bound_ns)]


def event_report(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return the events as a report of Python values, which take some kilobytes per event.

    Parameters
    ----------
    trace, selection, limit
        As for :func:`write_events`.
    """
    lines = io.BytesIO()
    notes = write_events(trace, selection, "json", lines, limit=limit)
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    rows = [[_value(event, column) for column in COLUMNS] for event in events]
    return of_rows("events", COLUMNS, rows, notes=notes)


def _value(event: dict[str, Any], column: Column) -> Value:
    """Return an event's value in a column: an identifier is a string in JSON, and a number in a report."""
    value: Value = event.get(column.name)
    return int(value) if column.unit == "id" and value is not None else value


def _has_flows(selection: Selection) -> bool:
    return bool(selection.flows or selection.ports or selection.addresses or selection.processes)


@relation(
    "wanted_packets",
    "an event of a packet of a selected flow",
    columns(" ".join(_PACKET_COLUMNS)),
    needs=("skb_lifetimes",),
    parameters=(SELECTION,),
    report="events",
)
def _wanted_packets(context: Context) -> str:
    trace, selection = context.trace, context.selection
    among = addresses(trace, f"SELECT DISTINCT skb FROM packets WHERE {selection.flow(trace)}")
    wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.window(trace)}"
    return f"SELECT {', '.join(_PACKET_COLUMNS)} FROM skb_lifetimes WHERE {among} AND {wanted}"


def _described(trace: Trace) -> list[Table]:
    """Return the trace's own tables of events."""
    return [
        table for table in trace.metadata.tables if {"time_ns", "cpu", "tid"} <= {each.name for each in table.columns}
    ]


def _notes(trace: Trace, selection: Selection) -> list[str]:
    if not (selection.flows or selection.ports or selection.addresses):
        return []
    counted = " UNION ALL ".join(
        f"SELECT count(*) AS events FROM {table} WHERE {selection.window(trace)}{without}"
        for table, without in [
            ("sockets", " AND flow = 0"),
            ("cpu", ""),
            *((table.name, "") for table in _described(trace)),
        ]
    )
    ((left_out,),) = trace.rows(f"SELECT CAST(sum(events) AS BIGINT) FROM ({counted}) c")
    if not left_out:
        return []
    return [f"left out: {plural(left_out, 'event')} without a flow (calls, CPU activity, tracepoints and functions)"]


def _slices(trace: Trace, selection: Selection) -> list[tuple[int, int]]:
    """Return [from, until) of slices of the run with about `_SLICE_ROWS` events each."""
    counted = " UNION ALL ".join(
        f"SELECT time_ns - time_ns % {_GRAIN_NS} AS grain_ns FROM {table} WHERE {selection.window(trace)}"
        for table in (*TABLES, *(table.name for table in _described(trace)))
    )
    found = trace.columns(f"SELECT grain_ns, count(*) AS events FROM ({counted}) t GROUP BY grain_ns ORDER BY grain_ns")
    grains = found["grain_ns"]
    if not len(grains):
        return []
    parts = np.cumsum(found["events"]) // _SLICE_ROWS
    firsts = grains[np.flatnonzero(np.diff(parts, prepend=-1))]
    ends = np.append(firsts[1:], grains[-1] + _GRAIN_NS)
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _order_bound_ns(trace: Trace) -> int | None:
    """Return the maximum error of the difference of times of two hosts; None in a trace of one host."""
    build(trace, "clock_bounds")
    most = trace.rows("SELECT max(bound_ns) FROM clock_bounds GROUP BY host ORDER BY 1 DESC LIMIT 2")
    return sum(int(bound_ns) for (bound_ns,) in most) if hosts(trace) else None


def _order_notes(bound_ns: int | None) -> list[str]:
    if bound_ns is None:
        return []
    return [f"~: the order relative to events of other hosts within {fmt.time(bound_ns)} is not certain"]


def _query(trace: Trace, selection: Selection, form: Form, slice_ns: tuple[int, int], bound_ns: int | None) -> str:
    """Return the query for the lines of a slice; ties in time are resolved deterministically.

    `bound_ns`: see :func:`_order_bound_ns`. Events that are as close to the slice decide whether the order is certain.
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
    return f"SELECT {finished(form, bound_ns)} AS line FROM ({lines}) l WHERE {inside} ORDER BY time_ns, cpu, point"


def _lines(trace: Trace, selection: Selection, form: Form, window: str) -> str:
    """Return the query for the lines of a period, with the columns by which they are sorted."""
    started_ns = trace.metadata.started_ns
    chosen = {"packets": "wanted_packets"} if _has_flows(selection) else {}
    lines = [
        f"SELECT e.time_ns, e.cpu, e.point, {line_of(form, table, started_ns)} AS line"
        f" FROM (SELECT * FROM {chosen.get(table, table)} WHERE {window} AND {_wanted(trace, selection, table)}) e"
        f" {joins(table)}"
        for table in TABLES
    ]
    lines += [
        f"SELECT e.time_ns, e.cpu, {_AFTER_POINTS + place} AS point, {line_of_fields(form, table, started_ns)} AS line"
        f" FROM (SELECT * FROM {table.name} WHERE {window} AND {_wanted_of_threads(trace, selection)}) e"
        f" {joins_of_fields()}"
        for place, table in enumerate(_described(trace))
    ]
    return " UNION ALL ".join(lines)


def _wanted_of_threads(trace: Trace, selection: Selection) -> str:
    """Return the condition on events that have a thread, but neither flow nor device."""
    if selection.flows or selection.ports or selection.addresses or selection.interfaces:
        return "FALSE"
    return f"tid IN ({selection.threads(trace)})" if selection.processes else "TRUE"


def _wanted(trace: Trace, selection: Selection, table: str) -> str:
    if table == "packets":
        return selection.device(trace)  # those of selected flows are chosen before
    if table in {"sockets", "tcp"}:
        return "FALSE" if selection.interfaces else selection.flow(trace)
    if selection.flows or selection.ports or selection.addresses:
        return "FALSE"
    if not selection.processes:
        return selection.device(trace)
    threads = selection.threads(trace)
    scheduled = "point IN (SELECT point FROM points WHERE name LIKE 'sched.%')"
    return f"(tid IN ({threads}) OR (subject IN ({threads}) AND {scheduled})) AND {selection.device(trace)}"
