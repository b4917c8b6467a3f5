# SPDX-License-Identifier: Apache-2.0
"""Messages of UDP: datagrams, followed from the call that sent them to the return of the call that received them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.lives import make_lives
from hopscope.analysis.messages_path import BY_COLUMN, PACKET_COLUMNS
from hopscope.analysis.messages_segments import number
from hopscope.analysis.names import points

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

UDP: Final = 17
# So many addresses can stand in a query.
MOST_ADDRESSES: Final = 4096
_PEEK: Final = 2
_SCRATCH: Final = (
    "datagrams",
    "datagram_calls",
    "datagrams_told",
    "datagrams_received",
    "around_datagrams",
    "around_received",
)


def make_udp_messages(trace: Trace, selection: Selection) -> None:
    """Make the table ``udp_messages``: a row a datagram that was sent here, not yet checked for order."""
    numbers = points(trace)
    make_lives(trace)
    addresses = _addresses(trace)
    # Of a flow that is translated, both ends' addresses and ports are its own.
    wanted = " OR ".join(selection.flow(trace, name) for name in ("flow", "translated"))
    trace.make_table("datagrams", _datagrams(numbers, f"({wanted})", addresses))
    trace.make_table("datagram_calls", _calls(numbers))
    trace.make_table("datagrams_told", _told(numbers))
    trace.make_table("datagrams_received", _received(numbers))
    trace.make_table("around_datagrams", _around(numbers))  # first the rows, then the windows: that is quicker
    trace.make_table("around_received", _before_returns(numbers))
    trace.make_table("udp_messages", _MESSAGES)
    for name in _SCRATCH:
        trace.execute(f"DROP TABLE {name}")


def _addresses(trace: Trace) -> str:
    """Return the condition that an skb's address is one that datagrams had, if those are few: lives take long."""
    query = f"SELECT DISTINCT skb FROM packets WHERE flow IN (SELECT flow FROM flows WHERE protocol = {UDP})"
    found = trace.rows(f"{query} LIMIT {MOST_ADDRESSES + 1}")
    if not found or len(found) > MOST_ADDRESSES:
        return "TRUE"
    return f"skb IN ({', '.join(str(skb) for (skb,) in found)})"


def _datagrams(numbers: dict[str, int], wanted: str, addresses: str) -> str:
    """Return the query for the packets whose life begins with a send call, with the times at their points.

    ``translated`` is the flow that a datagram comes to its last device with, if that is another and the payload is the
    same: what a tunnel puts around it makes it longer.
    """
    known = {column: number(numbers, BY_COLUMN[column].point) for column in PACKET_COLUMNS if column != "tcp_ns"}
    known |= {"copied_ns": number(numbers, "rx.copy"), "dropped_ns": number(numbers, "skb.drop")}
    freed = number(numbers, "skb.free")
    listed = ", ".join(map(str, (*known.values(), freed)))
    times = ", ".join(f"min(CASE WHEN point = {each} THEN time_ns END) AS {name}" for name, each in known.items())
    queue = known["queue_ns"]
    return f"""
        SELECT packet, flow, translated, len_bytes, tid, coalesce(l4_cpu, core_cpu) AS came_cpu, freed_tid, freed_ns,
               CAST(NULL AS BIGINT) AS tcp_ns, {", ".join(known)}
        FROM (SELECT *, CASE WHEN last_flow <> flow AND last_len = len_bytes THEN last_flow END AS translated
              FROM (SELECT packet, min(time_ns) AS begins_ns, {times},
                           max(CASE WHEN point = {freed} THEN tid END) AS freed_tid,
                           max(CASE WHEN point = {freed} THEN time_ns END) AS freed_ns,
                           min_by(cpu, CASE WHEN point = {known["l4_ns"]} THEN time_ns END) AS l4_cpu,
                           min_by(cpu, CASE WHEN point = {known["core_ns"]} THEN time_ns END) AS core_cpu,
                           min_by(flow, CASE WHEN point = {queue} THEN time_ns END) AS flow,
                           min_by(tid, CASE WHEN point = {queue} THEN time_ns END) AS tid,
                           min_by(len_bytes - header_bytes, CASE WHEN point = {queue} THEN time_ns END) AS len_bytes,
                           max_by(flow, CASE WHEN point = {queue} THEN time_ns END) AS last_flow,
                           max_by(len_bytes - header_bytes, CASE WHEN point = {queue} THEN time_ns END) AS last_len
                    FROM chains WHERE point IN ({listed}) AND {addresses} GROUP BY packet) whole) named
        WHERE queue_ns = begins_ns AND flow IN (SELECT flow FROM flows WHERE protocol = {UDP}) AND {wanted}"""


def _calls(numbers: dict[str, int]) -> str:
    """Return the query for when the send call was entered and done: what stands beside tx.queue in its thread."""
    enter, sent = number(numbers, "call.enter"), number(numbers, "tx.sent")
    thread = "OVER (PARTITION BY tid ORDER BY time_ns)"
    return f"""
        SELECT packet, CASE WHEN before_point = {enter} THEN before_ns END AS call_ns,
               CASE WHEN next_point = {sent} THEN next_ns END AS sent_ns
        FROM (SELECT packet, lag(point) {thread} AS before_point, lag(time_ns) {thread} AS before_ns,
                     lead(point) {thread} AS next_point, lead(time_ns) {thread} AS next_ns
              FROM (SELECT packet, tid, queue_ns AS time_ns, 0 AS point FROM datagrams
                    UNION ALL SELECT NULL, tid, time_ns, point FROM sockets WHERE point IN ({enter}, {sent})) calls
             ) found WHERE packet IS NOT NULL"""


def _told(numbers: dict[str, int]) -> str:
    """Return the query for which socket was told of a datagram, and as which in its order.

    The reader is told right after the datagram is in the queue, on the same CPU, before that does the next packet.
    """
    ready = number(numbers, "rx.ready")
    cpu = "OVER (PARTITION BY cpu ORDER BY time_ns)"
    return f"""
        SELECT packet, sock, time_ns AS ready_ns, row_number() OVER (PARTITION BY sock ORDER BY time_ns) AS place
        FROM (SELECT point, sock, time_ns, lag(packet) {cpu} AS packet
              FROM (SELECT came_cpu AS cpu, coalesce(l4_ns, core_ns) AS time_ns, 0 AS point, packet, 0 AS sock
                    FROM datagrams WHERE came_cpu IS NOT NULL
                    UNION ALL SELECT cpu, time_ns, point, NULL, sock FROM sockets
                              WHERE point = {ready} AND protocol = {UDP}) events) found
        WHERE point = {ready}"""


def _received(numbers: dict[str, int]) -> str:
    """Return the query for which datagram, in the order of its socket, a receive call returned.

    A queue gives its datagrams in order. Those that were received before the socket was told of as many were in the
    queue before the recording began, or their events are missing: the rest is counted from there.
    """
    ready, received = number(numbers, "rx.ready"), number(numbers, "rx.received")
    order = "(PARTITION BY sock ORDER BY time_ns ROWS UNBOUNDED PRECEDING)"
    return f"""
        SELECT sock, tid, time_ns, len_bytes, nth - max(surplus) OVER {order} AS place
        FROM (SELECT *, CASE WHEN nth > told THEN nth - told ELSE 0 END AS surplus
              FROM (SELECT *, sum(CASE WHEN point = {received} THEN 1 ELSE 0 END) OVER {order} AS nth,
                           sum(CASE WHEN point = {ready} THEN 1 ELSE 0 END) OVER {order} AS told
                    FROM sockets WHERE protocol = {UDP} AND (point = {ready} OR (
                         point = {received} AND len_bytes >= 0 AND value % {2 * _PEEK} < {_PEEK}))) counted
              WHERE point = {received}) numbered"""


def _around(numbers: dict[str, int]) -> str:
    """Return the query for returns of receive calls, and for what their threads did: wake-ups, switches to them."""
    wake, switch = number(numbers, "sched.wake"), number(numbers, "sched.switch")
    return f"""
        SELECT tid, time_ns, 0 AS point FROM datagrams_received
        UNION ALL SELECT CAST(subject AS INTEGER), time_ns, point FROM cpu
                  WHERE point IN ({wake}, {switch}) AND subject IN (SELECT DISTINCT tid FROM datagrams_received)"""


def _before_returns(numbers: dict[str, int]) -> str:
    """Return the query for the last wake-up of the reader, and its last switch to a CPU, before a call returned."""
    last = ", ".join(
        f"max(CASE WHEN point = {number(numbers, point)} THEN time_ns END) OVER"
        f" (PARTITION BY tid ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS {name}"
        for name, point in (("wake_ns", "sched.wake"), ("switch_ns", "sched.switch"))
    )
    return f"SELECT * FROM (SELECT *, {last} FROM around_datagrams) found WHERE point = 0"


# What a call received is no longer than the datagram: where it is, the order is not known for sure.
_MESSAGES: Final = f"""
    SELECT d.flow, d.translated, 0 AS connection, CAST(NULL AS BIGINT) AS start_byte, CAST(NULL AS BIGINT) AS end_byte,
           d.len_bytes, d.tid AS sender_tid, c.call_ns, CAST(NULL AS BIGINT) AS send_ns, c.sent_ns,
           CAST(NULL AS BIGINT) AS first_ns,
           {", ".join(f"d.{name}" for name in PACKET_COLUMNS)},
           t.ready_ns, r.tid AS reader_tid, a.wake_ns, a.switch_ns, d.copied_ns AS copy_ns,
           CASE WHEN d.freed_tid = r.tid AND d.freed_ns < r.time_ns THEN d.freed_ns END AS read_ns,
           r.time_ns AS received_ns, 0 AS retransmits, CAST(NULL AS BIGINT) AS resent_ns, d.dropped_ns
    FROM datagrams d
    LEFT JOIN datagram_calls c ON c.packet = d.packet
    LEFT JOIN datagrams_told t ON t.packet = d.packet
    LEFT JOIN datagrams_received r ON r.sock = t.sock AND r.place = t.place AND r.len_bytes <= d.len_bytes
    LEFT JOIN around_received a ON a.tid = r.tid AND a.time_ns = r.time_ns"""
