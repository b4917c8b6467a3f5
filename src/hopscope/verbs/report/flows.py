# SPDX-License-Identifier: Apache-2.0
"""The flows of a trace: packets, bytes, retransmissions and drops of each on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.trace.gaps import loss_notes
from hopscope.trace.names import UNNAMED, points
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("flow", "id", "number of the flow", "number", rank=9),
    Column("flow_name", "text", "source > destination", "flow"),
    Column("protocol", "text", "transport protocol", "proto", rank=1),
    Column(
        "tx_packets",
        "count",
        "packets queued at a device for sending; a packet that is segmented later counts once",
        "tx",
    ),
    Column("tx_bytes", "bytes", "their bytes, including headers", "bytes"),
    Column("rx_packets", "count", "packets received from a driver; packets merged by GRO count once", "rx"),
    Column("rx_bytes", "bytes", "their bytes, including headers", "bytes"),
    Column("retransmits", "count", "retransmitted TCP segments", "retr", rank=2),
    Column("drops", "count", "packets dropped on this host", "drops"),
    Column("first_ns", "at_ns", "time of the first packet", "first", rank=3),
    Column("last_ns", "at_ns", "time of the last packet", "last", rank=4),
)

# A packet passes stacked devices one after the other: the busiest device counts each once.
_QUERY: Final = """
    WITH by_device AS (
        SELECT flow, netns, ifindex, point, count(*) AS packets, sum(len_bytes) AS len_bytes,
               min(time_ns) AS first_ns, max(time_ns) AS last_ns
        FROM packets WHERE flow <> 0 AND {wanted} GROUP BY flow, netns, ifindex, point),
    by_point AS (
        SELECT flow, point, max(packets) AS packets, max(len_bytes) AS len_bytes, sum(packets) AS events,
               min(first_ns) AS first_ns, max(last_ns) AS last_ns
        FROM by_device GROUP BY flow, point),
    by_flow AS (
        SELECT flow,
               coalesce(max(CASE WHEN point = {tx_queue} THEN packets END), 0) AS tx_packets,
               coalesce(max(CASE WHEN point = {tx_queue} THEN len_bytes END), 0) AS tx_bytes,
               coalesce(max(CASE WHEN point = {rx_core} THEN packets END), 0) AS rx_packets,
               coalesce(max(CASE WHEN point = {rx_core} THEN len_bytes END), 0) AS rx_bytes,
               coalesce(max(CASE WHEN point = {retransmit} THEN events END), 0) AS retransmits,
               coalesce(max(CASE WHEN point = {drop} THEN events END), 0) AS drops,
               min(first_ns) AS first_ns, max(last_ns) AS last_ns
        FROM by_point GROUP BY flow)
    SELECT f.flow, coalesce(n.name, {unnamed}), coalesce(n.protocol_name, ''), tx_packets, tx_bytes,
           rx_packets, rx_bytes, retransmits, drops, first_ns - {started_ns}, last_ns - {started_ns},
           count(*) OVER () AS flows
    FROM by_flow f LEFT JOIN flow_names n ON n.flow = f.flow
    ORDER BY tx_bytes + rx_bytes DESC, f.flow"""


def flows(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per flow, those with most bytes first."""
    build(trace, "flow_names")
    number = points(trace)
    query = _QUERY.format(
        wanted=f"{selection.window(trace)} AND {selection.flow(trace)} AND {selection.place(trace)}",
        tx_queue=number.get("tx.queue", -1),
        rx_core=number.get("rx.core", -1),
        retransmit=number.get("tcp.retransmit", -1),
        drop=number.get("skb.drop", -1),
        started_ns=trace.metadata.started_ns,
        unnamed=UNNAMED.format("f.flow"),
    )
    rows = trace.rows(query if limit is None else f"{query} LIMIT {limit}")
    left_out = rows[0][-1] - len(rows) if rows else 0
    return of_rows("flows", COLUMNS, [row[:-1] for row in rows], notes=loss_notes(trace), left_out=left_out)
