# SPDX-License-Identifier: Apache-2.0
"""Messages of UDP: datagrams, followed from the call that sent them to the return of the call that received them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.host_numbers import hosts
from hopscope.analysis.lives import addresses, make_lives
from hopscope.analysis.messages_path import BY_COLUMN, PACKET_COLUMNS
from hopscope.analysis.messages_segments import number
from hopscope.analysis.messages_udp_hosts import link_lives, lives_to_link
from hopscope.analysis.names import points
from hopscope.store.engine import last_known

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

UDP: Final = 17
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
    datagrams = f"SELECT flow FROM flows WHERE protocol = {UDP}"
    among = addresses(trace, f"SELECT DISTINCT skb FROM packets WHERE flow IN ({datagrams})")
    # Of a flow that is translated, both ends' addresses and ports are its own.
    wanted = " OR ".join(selection.flow(trace, name) for name in ("flow", "translated"))
    if hosts(trace):
        lives = link_lives(trace, lives_of_datagrams(numbers, among, lives_to_link(numbers)), datagrams)
    else:
        lives = lives_of_datagrams(numbers, among)
    trace.make_table("datagrams", _DATAGRAMS.format(lives=lives, wanted=wanted))
    trace.make_table("datagram_calls", _calls(numbers))
    trace.make_table("datagrams_told", _told(numbers))
    trace.make_table("datagrams_received", _received(numbers))
    trace.make_table("around_datagrams", _around(numbers))  # first the rows, then the windows: that is quicker
    trace.make_table("around_received", _before_returns(numbers))
    trace.make_table("udp_messages", _MESSAGES)
    trace.drop(*_SCRATCH)


_ONE_HOST: Final = (
    "CAST(NULL AS SMALLINT) AS sender_host, CAST(NULL AS SMALLINT) AS receiver_host, CAST(NULL AS STRING) AS state"
)


def lives_of_datagrams(numbers: dict[str, int], among: str, more: str = "") -> str:
    """Return the query for packets' lives: when each passed which point, and what it was at its device first and last.

    ``last_flow`` is what it comes to its last device with: if its payload is the same, it was translated; what a tunnel
    puts around it makes it longer.
    """
    known = {column: number(numbers, BY_COLUMN[column].point) for column in PACKET_COLUMNS if column != "tcp_ns"}
    known |= {"copied_ns": number(numbers, "rx.copy"), "dropped_ns": number(numbers, "skb.drop")}
    freed = number(numbers, "skb.free")
    listed = ", ".join(map(str, (*known.values(), freed)))
    times = ", ".join(f"min(CASE WHEN point = {each} THEN time_ns END) AS {name}" for name, each in known.items())
    at = {name: f"CASE WHEN point = {known[f'{name}_ns']} THEN time_ns END" for name in ("queue", "l4", "core")}
    payload = "len_bytes - header_bytes"
    return f"""
        SELECT packet, min(time_ns) AS begins_ns, {times}, CAST(NULL AS BIGINT) AS tcp_ns,
               max(CASE WHEN point = {freed} THEN tid END) AS freed_tid,
               max(CASE WHEN point = {freed} THEN time_ns END) AS freed_ns,
               coalesce(min_by(cpu, {at["l4"]}), min_by(cpu, {at["core"]})) AS came_cpu,
               min_by(flow, {at["queue"]}) AS flow, min_by(tid, {at["queue"]}) AS tid,
               min_by({payload}, {at["queue"]}) AS len_bytes,
               max_by(flow, {at["queue"]}) AS last_flow, max_by({payload}, {at["queue"]}) AS last_len,
               {more or _ONE_HOST}
        FROM chains WHERE point IN ({listed}) AND {among} GROUP BY packet"""


# The packets whose life begins with a send call.
_DATAGRAMS: Final = f"""
    SELECT * FROM (SELECT *, CASE WHEN last_flow <> flow AND last_len = len_bytes THEN last_flow END AS translated
                   FROM ({{lives}}) whole) named
    WHERE queue_ns = begins_ns AND flow IN (SELECT flow FROM flows WHERE protocol = {UDP}) AND ({{wanted}})"""


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
    more = last_known("CASE WHEN surplus > 0 AND hit = 1 THEN surplus END")
    # In one more call the surplus is one more at most: so its greatest value so far is the last that came up first.
    return f"""
        SELECT sock, tid, time_ns, len_bytes,
               nth - coalesce({more} OVER (PARTITION BY sock ORDER BY time_ns ROWS UNBOUNDED PRECEDING), 0) AS place
        FROM (SELECT *, row_number() OVER (PARTITION BY sock, surplus ORDER BY time_ns) AS hit
              FROM (SELECT sock, tid, time_ns, len_bytes, nth, nth - told AS surplus
                    FROM (SELECT sock, tid, time_ns, len_bytes, point, nth, every - nth AS told
                          FROM (SELECT *, row_number() OVER (PARTITION BY sock, point ORDER BY time_ns) AS nth,
                                       row_number() OVER (PARTITION BY sock ORDER BY time_ns) AS every
                                FROM sockets WHERE protocol = {UDP} AND (point = {ready} OR (
                                     point = {received} AND len_bytes >= 0 AND value % {2 * _PEEK} < {_PEEK}))) counted
                         ) numbered
                    WHERE point = {received}) compared) ranked"""


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
        f"{last_known(f'CASE WHEN point = {number(numbers, point)} THEN time_ns END')} OVER"
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
           r.time_ns AS received_ns, 0 AS retransmits, CAST(NULL AS BIGINT) AS resent_ns, d.dropped_ns,
           d.sender_host, d.receiver_host, d.state
    FROM datagrams d
    LEFT JOIN datagram_calls c ON c.packet = d.packet
    LEFT JOIN datagrams_told t ON t.packet = d.packet
    LEFT JOIN datagrams_received r ON r.sock = t.sock AND r.place = t.place AND r.len_bytes <= d.len_bytes
    LEFT JOIN around_received a ON a.tid = r.tid AND a.time_ns = r.time_ns"""
