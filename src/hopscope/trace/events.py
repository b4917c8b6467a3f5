# SPDX-License-Identifier: Apache-2.0
"""The events of a trace that are selected, and slices of its time with about as many events each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.progress import doing
from hopscope.store.schema import BY_NAME, EVENT_TABLES
from hopscope.term.format import plural
from hopscope.trace.packets.skb_lifetimes import addresses
from hopscope.trace.relation import SELECTION, build, columns, relation
from hopscope.trace.where import Where, tables_of_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.schema import Table
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

# Events of a slice, which are in memory at a time, and the granularity of slices.
_SLICE_ROWS: Final = 1 << 20
_GRAIN_NS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_PACKET_COLUMNS: Final = [column.name for column in BY_NAME["packets"].columns]


@relation(
    "wanted_packets",
    "an event of a packet of a selected flow",
    columns(
        " ".join([*_PACKET_COLUMNS, "from_time_ns life_flow"]),
        from_time_ns="time of the packet's event before; NULL: none",
    ),
    needs=("skb_lifetimes",),
    parameters=(SELECTION,),
)
def _wanted_packets(context: Context) -> str:
    trace, selection = context.trace, context.selection
    among = addresses(trace, f"SELECT DISTINCT skb FROM packets WHERE {selection.flow(trace)}")
    wanted = f"{selection.flow(trace, 'life_flow')} AND {selection.window(trace)}"
    return f"SELECT {', '.join(_PACKET_COLUMNS)}, from_time_ns, life_flow FROM skb_lifetimes WHERE {among} AND {wanted}"


def own_tables(trace: Trace) -> list[Table]:
    """Return the trace's own tables of events."""
    return tables_of_events(trace.metadata.tables)


def prepare(trace: Trace, selection: Selection) -> None:
    """Make what the queries of :func:`rows` read."""
    if _has_flows(selection):
        build(trace, "wanted_packets", selection=selection)
    elif _needs_lifetimes(trace, selection):
        build(trace, "skb_lifetimes")


def rows(trace: Trace, selection: Selection, table: str, window: str) -> str:
    """Return the query for the selected events of a table, in full.

    Parameters
    ----------
    trace, selection
        The trace, and the events: a flow's are those of its sockets and packets, at any point; a process's are those
        of its sockets' flows, and of its threads.
    table
        One of :data:`~hopscope.store.schema.EVENT_TABLES`, or the trace's own.
    window
        The condition on the time.
    """
    standard = table in EVENT_TABLES
    wanted = _wanted(trace, selection, table) if standard else _wanted_of_threads(trace, selection)
    if selection.where:
        described = BY_NAME[table] if standard else next(each for each in own_tables(trace) if each.name == table)
        wanted += f" AND {Where(trace, selection.where).sql(described)}"
    if table != "packets":
        return f"SELECT * FROM {table} WHERE {window} AND {wanted}"
    lifetimes = "skb_lifetimes" if _needs_lifetimes(trace, selection) else "packets"
    chosen = "wanted_packets" if _has_flows(selection) else lifetimes
    return f"SELECT {', '.join(_PACKET_COLUMNS)} FROM {chosen} WHERE {window} AND {wanted}"


def notes(trace: Trace, selection: Selection) -> list[str]:
    """Return a sentence about events that are left out because they have no flow, by which others are selected."""
    if not selection.is_by_flow:
        return []
    counted = " UNION ALL ".join(
        f"SELECT count(*) AS events FROM {table} WHERE {selection.window(trace)}{without}"
        for table, without in [
            ("sockets", " AND flow = 0"),
            ("cpu", ""),
            *((table.name, "") for table in own_tables(trace)),
        ]
    )
    ((left_out,),) = trace.rows(f"SELECT CAST(sum(events) AS BIGINT) FROM ({counted}) c")
    if not left_out:
        return []
    return [f"left out: {plural(left_out, 'event')} without a flow (calls, CPU activity, tracepoints and functions)"]


def at_most(trace: Trace, selection: Selection, limit: int | None) -> tuple[Selection, list[str]]:
    """Return the selection of the earliest events, so many at most, and a sentence on what it leaves out."""
    if limit is None:
        return selection, []
    window = selection.window(trace)
    times = " UNION ALL ".join(
        f"SELECT time_ns FROM ({rows(trace, selection, table, window)}) e"
        for table in (*EVENT_TABLES, *(table.name for table in own_tables(trace)))
    )
    ((count,),) = trace.rows(f"SELECT count(*) FROM ({times}) t")
    if count <= limit:
        return selection, []
    last_ns = np.partition(trace.columns(times)["time_ns"], limit)[limit]
    until_s = (int(last_ns) - trace.metadata.started_ns) / _NS_PER_S
    ((left_out,),) = trace.rows(f"SELECT count(*) FROM ({times}) t WHERE time_ns >= {last_ns}")
    sentence = (
        f"left out: {plural(left_out, 'event')}, all from {until_s:.6f} s on, as at most {limit:,} are exported: "
        "select a part with --from, --until or --flow, or raise --limit"
    )
    return replace(selection, until_s=until_s), [sentence]


def slices(trace: Trace, selection: Selection) -> list[tuple[int, int]]:
    """Return [from, until) of slices of the run with about `_SLICE_ROWS` events each, selected or not."""
    counted = " UNION ALL ".join(
        f"SELECT time_ns - time_ns % {_GRAIN_NS} AS grain_ns FROM {table} WHERE {selection.window(trace)}"
        for table in (*EVENT_TABLES, *(table.name for table in own_tables(trace)))
    )
    found = trace.columns(f"SELECT grain_ns, count(*) AS events FROM ({counted}) t GROUP BY grain_ns ORDER BY grain_ns")
    grains = found["grain_ns"]
    if not len(grains):
        return []
    parts = np.cumsum(found["events"]) // _SLICE_ROWS
    firsts = grains[np.flatnonzero(np.diff(parts, prepend=-1))]
    ends = np.append(firsts[1:], grains[-1] + _GRAIN_NS)
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def each_slice(trace: Trace, selection: Selection) -> Iterator[tuple[int, int]]:
    """Iterate over :func:`slices`, whose events are read one slice after the other."""
    periods = slices(trace, selection)
    for number, period in enumerate(periods):
        doing("reading events, part", number, len(periods))
        yield period


def _has_flows(selection: Selection) -> bool:
    return selection.is_by_flow or bool(selection.processes)


def _needs_lifetimes(trace: Trace, selection: Selection) -> bool:
    return bool(selection.where) and Where(trace, selection.where).needs_lifetimes


def _wanted_of_threads(trace: Trace, selection: Selection) -> str:
    """Return the condition on events that have a thread, but neither flow nor device."""
    if selection.is_by_flow or selection.is_by_place:
        return "FALSE"
    return f"tid IN ({selection.threads(trace)})" if selection.processes else "TRUE"


def _wanted(trace: Trace, selection: Selection, table: str) -> str:
    if table == "packets":
        return selection.place(trace)  # those of selected flows are chosen before
    if table in {"sockets", "tcp"}:
        return "FALSE" if selection.interfaces else f"{selection.flow(trace)} AND {selection.namespace(trace)}"
    if selection.is_by_flow:
        return "FALSE"
    if not selection.processes:
        return selection.place(trace)
    threads = selection.threads(trace)
    scheduled = "point IN (SELECT point FROM points WHERE name LIKE 'sched.%')"
    return f"(tid IN ({threads}) OR (subject IN ({threads}) AND {scheduled})) AND {selection.place(trace)}"
