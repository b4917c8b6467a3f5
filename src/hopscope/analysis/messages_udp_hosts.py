# SPDX-License-Identifier: Apache-2.0
"""Datagrams from host to host: a sender's life and a receiver's become one, by way of routers that were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.datagram_links import make_links
from hopscope.analysis.host_numbers import host_of_cpu
from hopscope.analysis.messages_path import PACKET_COLUMNS
from hopscope.analysis.messages_segments import number

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

_MOST_ROUTERS: Final = 8
# What a packet passes on the host that it comes to.
_RECEIVED: Final = (*PACKET_COLUMNS[4:8], "copied_ns", "freed_ns", "freed_tid", "came_cpu")
_SENT: Final = (*PACKET_COLUMNS[:4], "packet", "begins_ns", "tcp_ns", "flow", "tid", "len_bytes")

# What left is at a device last to be sent; what came begins with the driver.
_ENDS: Final = """
    SELECT packet, host, 1 AS step, coalesce(last_start_ns, last_queue_ns) AS time_ns, last_flow AS flow,
           last_seq AS seq, last_len AS len_bytes
    FROM udp_lives WHERE leaves
    UNION ALL
    SELECT packet, host, -1, begins_ns, came_flow, came_seq, came_len FROM udp_lives WHERE driver_ns = begins_ns"""

_GOES_ON: Final = "FROM ways w JOIN links l ON l.packet = w.arrived AND l.state = 'came'"
_LONGER: Final = """
    SELECT w.packet, coalesce(l.arrived, w.arrived) AS arrived
    FROM ways w LEFT JOIN (SELECT * FROM links WHERE state = 'came') l ON l.packet = w.arrived"""

# To whom others of the flow came, if all of them came to the same host.
_GOALS: Final = """
    SELECT o.last_flow AS flow, max(a.host) AS to_host
    FROM ways w JOIN udp_lives o ON o.packet = w.packet JOIN udp_lives a ON a.packet = w.arrived AND NOT a.leaves
    GROUP BY o.last_flow HAVING min(a.host) = max(a.host)"""


def _of_end(column: str) -> str:
    """Return SQL for what the host says that a datagram came to; a router that sends it on is none."""
    return f"CASE WHEN NOT o.leaves THEN o.{column} WHEN NOT a.leaves THEN a.{column} END AS {column}"


_LINKED: Final = f"""
    SELECT {", ".join(f"o.{name}" for name in _SENT)},
           {", ".join(map(_of_end, _RECEIVED))},
           CASE WHEN o.leaves AND (o.dropped_ns IS NULL OR a.packet IS NOT NULL) THEN a.dropped_ns ELSE o.dropped_ns END
               AS dropped_ns,
           CASE WHEN a.packet IS NULL THEN o.last_flow WHEN a.leaves THEN a.last_flow ELSE a.came_flow END AS last_flow,
           CASE WHEN a.packet IS NULL THEN o.last_len WHEN a.leaves THEN a.last_len ELSE a.came_len END AS last_len,
           o.host AS sender_host,
           CASE WHEN NOT o.leaves THEN o.host WHEN a.packet IS NULL THEN g.to_host WHEN NOT a.leaves THEN a.host END
               AS receiver_host,
           l.state
    FROM udp_lives o
    LEFT JOIN links l ON l.packet = o.packet
    LEFT JOIN ways w ON w.packet = o.packet
    LEFT JOIN udp_lives a ON a.packet = w.arrived
    LEFT JOIN ({_GOALS}) g ON g.flow = o.last_flow"""


def lives_to_link(numbers: dict[str, int]) -> str:
    """Return the columns of lives by which they are linked."""
    queue, start, driver = (number(numbers, name) for name in ("tx.queue", "tx.start", "rx.driver"))
    at_queue, at_driver = (f"CASE WHEN point = {each} THEN time_ns END" for each in (queue, driver))
    return f"""{host_of_cpu("max(cpu)")} AS host, max_by(seq, {at_queue}) AS last_seq, max({at_queue}) AS last_queue_ns,
               max(CASE WHEN point = {start} THEN time_ns END) AS last_start_ns,
               coalesce(max({at_queue}) > coalesce(max({at_driver}), 0), FALSE) AS leaves,
               min_by(flow, {at_driver}) AS came_flow, min_by(seq, {at_driver}) AS came_seq,
               min_by(len_bytes - header_bytes, {at_driver}) AS came_len"""


def link_lives(trace: Trace, lives: str, wanted: str) -> str:
    """Link the lives that a query gives, and return the query for senders' lives that end where they were received.

    `wanted` is the query for the flows of datagrams. The table ``links`` stays.
    """
    trace.make_table("udp_lives", f"SELECT * FROM ({lives}) whole WHERE flow IN ({wanted}) OR came_flow IN ({wanted})")
    trace.make_table("datagram_ends", _ENDS)
    make_links(trace, "datagram_ends")
    trace.make_table("ways", "SELECT packet, arrived FROM links WHERE state = 'came'")
    for _ in range(_MOST_ROUTERS):
        if not trace.rows(f"SELECT 1 {_GOES_ON} LIMIT 1"):
            break
        trace.make_table("ways", _LONGER)
    return _LINKED
