# SPDX-License-Identifier: Apache-2.0
"""The report ``after``: what followed an event, for certain or possibly, as clocks of several hosts have a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.schema import EVENT_TABLES
from hopscope.term import format as fmt
from hopscope.term.format import plural
from hopscope.trace.clock_bounds import order_bound_ns
from hopscope.trace.events import notes, own_tables, prepare, rows
from hopscope.trace.gaps import loss_notes
from hopscope.trace.host_numbers import host_of_cpu, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

    Times = NDArray[np.int64]

COLUMNS: Final = (
    Column("event", "text", "name of what followed: a probe point, or an event of `record -e`", "event"),
    Column("host", "text", "where; null in a trace of one host", "host"),
    Column("times", "count", "how many of the events it followed for certain, within the period", "followed"),
    Column("part", "part", "their share of the events", "share"),
    Column("possibly", "count", "how many it only possibly followed: the order is not certain", "possibly"),
    Column("least_ns", "ns", "shortest time to the first one that followed for certain", "least"),
    Column("median_ns", "ns", "median of these times", "median"),
    Column("most_ns", "ns", "the longest", "most"),
)
_NS_PER_S: Final = 1e9


class _Kind(NamedTuple):
    name: str
    host: int


def after(trace: Trace, selection: Selection, event: str, within_s: float, *, limit: int | None = None) -> Report:
    """Return a row per kind of event and host that came after an event, the most frequent first.

    Parameters
    ----------
    trace, selection
        The trace, and the events that count, as for `report events`.
    event
        Name of a probe point, or of an event of ``record -e``.
    within_s
        How long after it.
    limit
        Maximum number of rows.

    Raises
    ------
    UsageError
        No such event was recorded.
    """
    prepare(trace, selection)
    found = dict(_times(trace, selection))
    first = {kind.host: times for kind, times in found.items() if kind.name == event}
    if not first:
        recorded = ", ".join(sorted({kind.name for kind in found})) or "none"
        raise UsageError(f"No event {event} was recorded or selected", f"Recorded were: {recorded}")
    bound_ns = order_bound_ns(trace)
    names = hosts(trace)
    count = sum(map(len, first.values()))
    within_ns = round(within_s * _NS_PER_S)
    rows_found = [
        [kind.name, names.get(kind.host), *_followed(first, kind.host, times, within_ns, bound_ns or 0)]
        for kind, times in found.items()
    ]
    some = [_with_part(row, count) for row in rows_found if row[2] or row[3]]
    some.sort(key=lambda row: (-int(row[2] or 0), -int(row[4] or 0), str(row[0]), str(row[1])))
    shown = some if limit is None else some[:limit]
    heading = [f"{plural(count, 'event')} {event}; what followed within {fmt.time(within_s * _NS_PER_S)}", ""]
    told = [*notes(trace, selection), *loss_notes(trace)]
    if bound_ns is not None:
        told.insert(0, f"events of other hosts less than {fmt.time(bound_ns)} away may have come before or after")
    return of_rows("after", COLUMNS, shown, notes=told, left_out=len(some) - len(shown), heading=heading)


def _with_part(row: list[Value], count: int) -> list[Value]:
    name, host, times, *rest = row
    return [name, host, times, int(times or 0) / count, *rest]


def _times(trace: Trace, selection: Selection) -> Iterator[tuple[_Kind, Times]]:
    """Iterate over the kinds of events, with their times in order."""
    host = host_of_cpu("cpu")
    window = selection.window(trace)
    labels = dict(trace.rows("SELECT point, name FROM points"))
    for table in EVENT_TABLES:
        query = rows(trace, selection, table, window)
        read = trace.columns(f"SELECT time_ns, point, {host} AS host FROM ({query}) e ORDER BY time_ns")
        keys = np.stack([np.asarray(read["point"], np.int64), np.asarray(read["host"], np.int64)])
        for point, of_host in np.unique(keys, axis=1).T.tolist():
            chosen = (keys[0] == point) & (keys[1] == of_host)
            yield _Kind(str(labels.get(point, point)), of_host), np.asarray(read["time_ns"])[chosen]
    for own in own_tables(trace):
        query = rows(trace, selection, own.name, window)
        read = trace.columns(f"SELECT time_ns, {host} AS host FROM ({query}) e ORDER BY time_ns")
        of_hosts = np.asarray(read["host"], np.int64)
        for of_host in np.unique(of_hosts).tolist():
            yield _Kind(own.name, of_host), np.asarray(read["time_ns"])[of_hosts == of_host]


def _followed(first: dict[int, Times], host: int, times: Times, within_ns: int, bound_ns: int) -> list[Value]:
    """Return how many it followed, for certain and possibly alone, and the least, median and longest time."""
    possibly, delays = 0, []
    for of_host, begins in first.items():
        bound = 0 if of_host == host else bound_ns
        at = np.searchsorted(times, begins + bound, "right")
        there = at < len(times)
        delay = np.where(there, times[np.minimum(at, len(times) - 1)] - begins, within_ns + 1)
        certain = delay <= within_ns
        near = np.searchsorted(times, begins - bound, "left") < at if bound else np.zeros(len(begins), bool)
        possibly += int((near & ~certain).sum())
        delays.append(delay[certain])
    every = np.concatenate(delays)
    if not len(every):
        return [0, possibly, None, None, None]
    return [len(every), possibly, int(every.min()), round(float(np.median(every))), int(every.max())]
