# SPDX-License-Identifier: Apache-2.0
"""All events in the order of time, as text. The engine builds the lines: nothing here runs per event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from hopscope.analysis.event_lines import CSV_HEADING, OWN_COLUMNS, TABLES, line_of
from hopscope.analysis.names import make_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

Form: TypeAlias = Literal["text", "json", "csv"]

# Lines that are sorted and held in memory at a time, and how finely the run is cut to come near that number.
_SLICE_ROWS: Final = 1 << 19
_GRAIN_NS: Final = 1_000_000


def event_blocks(trace: Trace, selection: Selection, form: Form, *, limit: int | None = None) -> Iterator[str]:
    """Iterate over blocks of lines, without a line end after the last of each.

    Parameters
    ----------
    trace, selection
        Whose events. A process's are those of its sockets' flows, and what its threads did.
    form
        ``text``: time since the start in s, CPU, probe point, thread, device, flow and what the event says;
        ``json``: an object a line; ``csv``: with a heading.
    limit
        So many lines.
    """
    make_names(trace)
    if form == "csv":
        yield CSV_HEADING
    left = limit
    for first_ns, until_ns in _slices(trace, selection):
        query = _query(trace, selection, form, f"time_ns >= {first_ns} AND time_ns < {until_ns}")
        if left is not None:
            query += f" LIMIT {left}"
        lines = trace.columns(query)["line"]
        if len(lines):
            yield "\n".join(lines.tolist())
        if left is not None:
            left -= len(lines)
            if left <= 0:
                return


def _slices(trace: Trace, selection: Selection) -> list[tuple[int, int]]:
    """Return [from, until) of parts of the run that have about `_SLICE_ROWS` events each."""
    counted = " UNION ALL ".join(
        f"SELECT time_ns - time_ns % {_GRAIN_NS} AS grain_ns FROM {table} WHERE {selection.window(trace)}"
        for table in TABLES
    )
    found = trace.columns(f"SELECT grain_ns, count(*) AS events FROM ({counted}) t GROUP BY grain_ns ORDER BY grain_ns")
    grains = found["grain_ns"]
    if not len(grains):
        return []
    parts = np.cumsum(found["events"]) // _SLICE_ROWS
    firsts = grains[np.flatnonzero(np.diff(parts, prepend=-1))]
    ends = np.append(firsts[1:], grains[-1] + _GRAIN_NS)
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _query(trace: Trace, selection: Selection, form: Form, window: str) -> str:
    """Return the query for the lines of a part of the run.

    The numbers that make the lines are joined to their names before they become text; ties in time are broken alike in
    every run.
    """
    parts = [
        f"SELECT time_ns, cpu, point, tid, {', '.join(_own(table))} FROM {table}"
        f" WHERE {window} AND {selection.window(trace)} AND {_wanted(trace, selection, table)}"
        for table in TABLES
    ]
    joins = (
        " LEFT JOIN points p ON p.point = e.point LEFT JOIN flow_names f ON f.flow = e.flow"
        " LEFT JOIN device_names d ON d.netns = e.netns AND d.ifindex = e.ifindex"
        " LEFT JOIN thread_names t ON t.tid = e.tid"
    )
    line = line_of(form, trace.metadata.started_ns)
    return f"SELECT {line} AS line FROM ({' UNION ALL '.join(parts)}) e{joins} ORDER BY e.time_ns, e.cpu, e.point"


def _own(table: str) -> list[str]:
    """Return the columns that events have besides those of all; those that a table lacks are NULL."""
    return [name if name in TABLES[table] else f"NULL AS {name}" for name in OWN_COLUMNS]


def _wanted(trace: Trace, selection: Selection, table: str) -> str:
    if table == "packets":
        return f"{selection.flow(trace)} AND {selection.device(trace)}"
    if table == "sockets":
        return "FALSE" if selection.interfaces else selection.flow(trace)
    if selection.flows or selection.ports or selection.addresses:
        return "FALSE"
    if not selection.processes:
        return selection.device(trace)
    threads = selection.threads(trace)
    scheduled = "point IN (SELECT point FROM points WHERE name LIKE 'sched.%')"
    return f"(tid IN ({threads}) OR (subject IN ({threads}) AND {scheduled})) AND {selection.device(trace)}"
