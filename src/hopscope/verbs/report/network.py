# SPDX-License-Identifier: Apache-2.0
"""The report ``network``: losses and one-way latencies between recorded hosts.

A lost packet left through the driver of one host, and did not arrive at the driver of the next one. Packets dropped by
the stack of the next host did arrive. Only packets with a payload are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.histogram import SLOTS, Histogram
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.histogram_sql import slot
from hopscope.trace.host_numbers import hosts
from hopscope.trace.packets.crossings import TOOK
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

ALL: Final = "all flows"

COLUMNS: Final = (
    Column("from_host", "text", "host whose driver sent the packets", "from"),
    Column("to_host", "text", "next recorded host on the path, or the host of the destination address", "to"),
    Column("flow_name", "text", "source > destination on the wire, or `all flows`", "flow"),
    Column("protocol", "text", "tcp or udp", "proto", rank=5),
    Column("sent", "count", "packets with a payload that left; a packet that the device segments counts once", "sent"),
    Column("sent_bytes", "bytes", "their payload", "bytes", rank=4),
    Column("lost", "count", "packets of which some bytes did not arrive", "lost"),
    Column("lost_bytes", "bytes", "payload that did not arrive", "lost B", rank=6),
    Column(
        "unsure",
        "count",
        "packets that did not arrive while the receiver was not recorded or events were lost",
        "unsure",
        rank=3,
    ),
    Column("again", "count", "sent TCP packets whose bytes had been sent before", "again", rank=3),
    Column("first_lost_ns", "at_ns", "departure time of the first lost packet", "first lost", rank=2),
    Column("last_lost_ns", "at_ns", "departure time of the last lost packet", "last lost", rank=2),
    Column("matched", "count", "packets identified at both ends, to which the times refer", "timed", rank=7),
    Column("p50_ns", "ns", "median time from driver to driver", "p50"),
    Column("p99_ns", "ns", "99th percentile", "p99"),
    Column("max_ns", "ns", "maximum", "max", rank=2),
    Column("bound_ns", "ns", "maximum error of each of these times (bound of the clocks)", "±"),
    Column(
        "asymmetry_ns",
        "ns",
        "p50 minus that of the opposite direction; null: unknown, or within twice the bound",
        "asymmetry",
        rank=5,
    ),
    Column("flow", "id", "number of the flow", "number", rank=9),
)

_COUNTED: Final = """
    SELECT l.from_host, l.to_host, {flow} AS flow, max(l.protocol), count(*), CAST(sum(s.payload) AS BIGINT),
           CAST(sum(CASE WHEN s.lost THEN 1 ELSE 0 END) AS BIGINT), CAST(sum(s.lost_bytes) AS BIGINT),
           CAST(sum(CASE WHEN s.unsure THEN 1 ELSE 0 END) AS BIGINT),
           CAST(sum(CASE WHEN s.again THEN 1 ELSE 0 END) AS BIGINT),
           min(CASE WHEN s.lost THEN s.left_ns END), max(CASE WHEN s.lost THEN s.left_ns END)
    FROM link_departures s JOIN flow_links l ON l.link = s.link GROUP BY l.from_host, l.to_host, {flow}"""
_TIMED: Final = f"""
    SELECT l.from_host, l.to_host, {{flow}} AS flow, slot, count(*), CAST(sum(took_ns) AS BIGINT), max(took_ns),
           max(bound_ns)
    FROM (SELECT link, bound_ns, {TOOK} AS took_ns, {slot(TOOK)} AS slot FROM link_crossings) c
    JOIN flow_links l ON l.link = c.link GROUP BY l.from_host, l.to_host, {{flow}}, slot"""
_OF_ALL: Final = "CAST(NULL AS BIGINT)"
_PROTOCOLS: Final = {6: "tcp", 17: "udp"}
Key = tuple[int, int, int | None]


def network(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per pair of hosts and direction, then one per flow, those with most losses first.

    Raises
    ------
    UsageError
        The trace contains only one host.
    """
    names = hosts(trace)
    if len(names) < 2:
        raise UsageError(
            f"{trace.folder} contains only one host", "`hopscope join` combines the recordings of several hosts"
        )
    build(trace, "flow_names", "flow_links", "link_crossings", "link_departures", selection=selection)
    times = {**_times(trace, _OF_ALL), **_times(trace, "l.flow")}
    flows = dict(trace.rows("SELECT flow, name FROM flow_names WHERE flow IN (SELECT flow FROM flow_links)"))
    pairs = sorted(trace.rows(_COUNTED.format(flow=_OF_ALL)))
    single = sorted(trace.rows(_COUNTED.format(flow="l.flow")), key=lambda row: (-row[6], -row[5], row[2]))
    rows = [_row(row, times, names, flows, trace.metadata.started_ns) for row in (*pairs, *single[:limit])]
    left_out = 0 if limit is None else max(len(single) - limit, 0)
    return of_rows("network", COLUMNS, rows, notes=_notes(trace, rows), left_out=left_out)


def _times(trace: Trace, flow: str) -> dict[Key, tuple[Histogram, int]]:
    """Return for each pair of hosts, and flow: the durations of packets, and the bound."""
    parts: dict[Key, list[Sequence[int]]] = {}
    for from_host, to_host, number, *counted in trace.rows(_TIMED.format(flow=flow)):
        parts.setdefault((from_host, to_host, number), []).append(counted)
    found = {}
    for key, counts in parts.items():
        slots = np.zeros(SLOTS, np.int64)
        for place, count, *_ in counts:
            slots[place] = count
        whole = Histogram(slots, sum(each[2] for each in counts), max(each[3] for each in counts))
        found[key] = whole, max(each[4] for each in counts)
    return found


def _row(
    counted: Sequence[int],
    times: Mapping[Key, tuple[Histogram, int]],
    names: Mapping[int, str],
    flows: Mapping[int, str],
    started_ns: int,
) -> list[Value]:
    from_host, to_host, flow, protocol, *counts, first_ns, last_ns = counted
    took, bound_ns = times.get((from_host, to_host, flow), (None, None))
    return [
        names.get(from_host, f"host {from_host}"),
        names.get(to_host, f"host {to_host}"),
        ALL if flow is None else flows.get(flow, str(flow)),
        None if flow is None else _PROTOCOLS[protocol],
        *counts,
        *(None if at_ns is None else at_ns - started_ns for at_ns in (first_ns, last_ns)),
        took.count if took else 0,
        *(took.percentile(q) if took else None for q in (50.0, 99.0)),
        took.max_ns if took else None,
        bound_ns,
        _asymmetry((from_host, to_host, flow), times),
        flow,
    ]


def _asymmetry(key: Key, times: Mapping[Key, tuple[Histogram, int]]) -> int | None:
    """Return the difference of the medians of both directions, ns; None within the error of the clocks."""
    from_host, to_host, flow = key
    if flow is not None or (to_host, from_host, None) not in times or key not in times:
        return None
    (there, bound_ns), (back, back_bound_ns) = times[key], times[to_host, from_host, None]
    longer = (there.percentile(50.0) or 0) - (back.percentile(50.0) or 0)
    return round(longer) if abs(longer) > bound_ns + back_bound_ns else None


_ELSEWHERE: Final = """
    SELECT count(DISTINCT p.flow) FROM packets p JOIN points n ON n.point = p.point AND n.name = 'tx.queue'
    JOIN flows f ON f.flow = p.flow AND f.protocol IN (6, 17)
    WHERE p.flow NOT IN (SELECT flow FROM flow_links) AND p.len_bytes > p.header_bytes"""


def _notes(trace: Trace, rows: Sequence[Sequence[Value]]) -> list[str]:
    notes = []
    if not rows:
        notes.append("no packets with a payload were sent from one recorded host to another")
    ((elsewhere,),) = trace.rows(_ELSEWHERE)
    if elsewhere:
        notes.append(
            f"not listed: {plural(elsewhere, 'flow')} (local to a host, to or translated by a host that was "
            "not recorded, or not selected)"
        )
    return [*notes, *loss_notes(trace), *unattached_notes(trace, ("tx.queue", "tx.start", "rx.driver"))]
