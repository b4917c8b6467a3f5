# SPDX-License-Identifier: Apache-2.0
"""All events in the order of time, as text. The engine builds the lines: nothing here runs per event."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TypeAlias

import numpy as np

from hopscope.analysis.event_lines import CSV_HEADING, NAMES, TABLES, joins, line_of
from hopscope.analysis.names import make_names

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

Form: TypeAlias = Literal["text", "json", "csv"]

# Lines that are sorted and held in memory at a time, and how finely the run is cut to come near that number.
_SLICE_ROWS: Final = 1 << 20
_GRAIN_NS: Final = 1_000_000


def write_events(trace: Trace, selection: Selection, form: Form, out: BinaryIO, *, limit: int | None = None) -> None:
    """Write a line for each event.

    Parameters
    ----------
    trace, selection
        Whose events. A process's are those of its sockets' flows, and what its threads did.
    form
        ``text``: time since the start in s, CPU, probe point, thread, device, flow and what the event says;
        ``json``: an object a line; ``csv``: with a heading.
    out
        Where to.
    limit
        So many lines.
    """
    make_names(trace)
    for name, query in NAMES.items():
        trace.make_table(name, query)
    if form == "csv":
        out.write(f"{CSV_HEADING}\n".encode())
    left = limit
    for first_ns, until_ns in _slices(trace, selection):
        query = _query(
            trace, selection, form, f"time_ns >= {first_ns} AND time_ns < {until_ns} AND {selection.window(trace)}"
        )
        written = trace.copy_lines(query if left is None else f"{query} LIMIT {left}", out)
        if left is not None:
            left -= written
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
    """Return the query for the lines of a part of the run; ties in time are broken alike in every run."""
    lines = (
        f"SELECT e.time_ns, e.cpu, e.point, {line_of(form, table, trace.metadata.started_ns)} AS line"
        f" FROM (SELECT * FROM {table} WHERE {window} AND {_wanted(trace, selection, table)}) e {joins(table)}"
        for table in TABLES
    )
    return f"SELECT line FROM ({' UNION ALL '.join(lines)}) l ORDER BY time_ns, cpu, point"


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
