# SPDX-License-Identifier: Apache-2.0
"""The contents of a trace: events of each probe point, origin and time, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.store.plaintext import CAUTION, risk_notes
from hopscope.store.schema import EVENT_TABLES
from hopscope.term.format import plural
from hopscope.term.recording import cost_lines
from hopscope.trace.gaps import class_notes, loss_notes, unattached, unrecorded_notes
from hopscope.trace.join.hosts import absence_notes, host_lines

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("table", "text", "table that contains the events", "table", rank=2),
    Column("point", "text", "probe point", "point"),
    Column("events", "count", "number of events", "events"),
    Column("events_per_s", "per_s", "average rate over the run", "per s"),
    Column("cpus", "count", "number of CPUs with such events", "CPUs", rank=1),
    Column("first_ns", "at_ns", "time of the first event", "first", rank=3),
    Column("last_ns", "at_ns", "time of the last event", "last", rank=3),
)

_ONE: Final = """
    SELECT '{table}' AS source, point, count(*) AS events, count(DISTINCT cpu) AS cpus,
           min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM {table} WHERE {wanted} GROUP BY point"""


def summary(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return the number of events of each probe point, with the metadata of the trace in the heading.

    Only the period of `selection` applies.
    """
    del limit  # there are not many points
    counted = " UNION ALL ".join(_ONE.format(table=table, wanted=selection.window(trace)) for table in EVENT_TABLES)
    rows = trace.rows(
        f"SELECT c.source, coalesce(p.name, CAST(c.point AS STRING)), c.events, c.cpus, c.first_ns, c.last_ns"
        f" FROM ({counted}) c LEFT JOIN points p ON p.point = c.point ORDER BY c.point"
    )
    started_ns = trace.metadata.started_ns
    ended_ns = trace.metadata.ended_ns or max((row[5] for row in rows), default=started_ns)
    length_s = (ended_ns - started_ns) / 1e9
    table = [
        (source, point, events, events / length_s if length_s else None, cpus, first - started_ns, last - started_ns)
        for source, point, events, cpus, first, last in rows
    ]
    heading = [*_heading(trace, length_s, sum(row[2] for row in rows)), ""]
    notes = [*_contents_notes(trace), *risk_notes(trace.metadata.tables), *absence_notes(trace), *loss_notes(trace)]
    notes += [*unrecorded_notes(trace), *class_notes(trace)]
    notes += [f"{point} not attached: {why}" for point, why in unattached(trace).items()]
    return of_rows("summary", COLUMNS, table, notes=notes, heading=heading)


def _contents_notes(trace: Trace) -> list[str]:
    if not trace.rows("SELECT 1 FROM payloads LIMIT 1"):
        return []
    return [f"risk: the trace has the beginning of what packets carried (--bytes), {CAUTION}"]


def _heading(trace: Trace, length_s: float, events: int) -> list[str]:
    meta = trace.metadata
    start = datetime.fromtimestamp(meta.realtime_ns // 10**9, UTC)
    host = " ".join(filter(None, (meta.host.get("name"), meta.host.get("release"), meta.host.get("machine"))))
    size_bytes = sum(file.stat().st_size for file in trace.folder.rglob("*") if file.is_file())
    rate = f", {events / length_s:,.0f} per second" if length_s else ""
    each = f", {size_bytes / events:.1f} per event" if events else ""
    counts = trace.rows(
        "SELECT (SELECT count(*) FROM flows), (SELECT count(DISTINCT pid) FROM threads),"
        " (SELECT count(*) FROM (SELECT DISTINCT netns, ifindex FROM devices) d), (SELECT count(*) FROM drops)"
    )[0]
    flows, processes, devices, drops = counts
    options = " ".join(f"{name}={value}" for name, value in meta.options.items() if value not in (None, "", [], {}))
    return [
        f"recorded {start:%Y-%m-%d %H:%M:%S} UTC for {length_s:.3f} s" + (f" on {host}" if host else ""),
        *([f"with {options}"] if options else []),
        f"{plural(events, 'event')}{rate}; {plural(size_bytes, 'byte')} on disk{each}",
        (
            f"{plural(flows, 'flow')}, {plural(processes, 'process', 'processes')}, {plural(devices, 'device')},"
            f" {plural(drops, 'drop')}"
        ),
        *cost_lines(meta.cost),
        *host_lines(trace),
    ]
