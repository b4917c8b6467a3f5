# SPDX-License-Identifier: Apache-2.0
"""TCP messages: the data of one send call, followed to the read that delivers its last byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.messages.join import cells, holds, probes
from hopscope.trace.messages.path import PACKET_COLUMNS
from hopscope.trace.messages.segments import IN_CONNECTION, SLICE, number, place
from hopscope.trace.names import points
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

# The kernel reports a retransmission this soon after it queued the packet: both are in one call of a function. The
# first copy of the packet left long before.
_TOLD_NS: Final = 10_000_000
_KEY: Final = ("flow", "connection", "end_byte")

# Flows whose receiver is a different host than the notified one.
_ELSEWHERE: Final = (
    "SELECT f.flow, h.host FROM flow_hosts f JOIN hosts h ON h.host <> f.receiver_host"
    " WHERE f.receiver_host IS NOT NULL"
)


def _notified(ready: int) -> str:
    """Return the query for segments, with the time when the reader of the flow was next notified."""
    return f"""
        SELECT * FROM (
            SELECT *, CASE WHEN coalesce(tcp_ns, l4_ns) IS NOT NULL THEN
                       {last_known("notified_ns")} OVER (PARTITION BY flow ORDER BY at_ns DESC ROWS UNBOUNDED PRECEDING)
                      END AS ready_ns
            FROM (SELECT *, coalesce(tcp_ns, l4_ns) AS at_ns, CAST(NULL AS BIGINT) AS notified_ns FROM tcp_segments
                  UNION ALL
                  SELECT flow, NULL, NULL, NULL, {", ".join("NULL" for _ in PACKET_COLUMNS)}, time_ns, time_ns
                  FROM original_sockets WHERE point = {ready} AND flow IN (SELECT flow FROM tcp_segments)
                       AND (flow, {host_of_cpu("cpu")}) NOT IN ({_ELSEWHERE})) both_kinds
        ) found WHERE start_byte IS NOT NULL"""


_SEGMENT: Final = columns(
    "flow connection start_byte end_byte",
    *PACKET_COLUMNS,
    "at_ns notified_ns ready_ns",
    at_ns="when TCP queued it; NULL: not seen",
)


@relation(
    "tcp_ready_segments",
    "a segment, with the time when the reader of the flow was next notified",
    _SEGMENT,
    needs=("tcp_segments", "original_sockets", "flow_hosts"),
    temporary=True,
)
def _tcp_ready_segments(context: Context) -> str:
    return _notified(number(points(context.trace), "rx.ready"))


cells("tcp_segment", "tcp_ready_segments", _SEGMENT)

fixed(
    "send_last_bytes",
    "the last byte of a write call, with a cell width to search",
    columns("flow connection end_byte byte start_byte width cell"),
    probes("tcp_segment", f"SELECT {', '.join(_KEY)}, end_byte - 1 AS byte, start_byte FROM tcp_sends"),
    needs=("tcp_sends", "tcp_segment_widths"),
    temporary=True,
)
_TIMES: Final = ", ".join(f"min(c.{column}) AS {column}" for column in (*PACKET_COLUMNS, "ready_ns"))
fixed(
    "send_packets",
    "a write call, with the time when a packet with its last byte first passed each point",
    columns(
        "flow connection end_byte neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns core_ns ip_ns",
        "l4_ns tcp_ns",
        "ready_ns whole",
    ),
    f"SELECT {', '.join(f'p.{name}' for name in _KEY)}, {_TIMES},"
    " max(CASE WHEN c.start_byte <= p.start_byte THEN 1 ELSE 0 END) AS whole"
    f" FROM send_last_bytes p JOIN tcp_segment_cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    needs=("send_last_bytes", "tcp_segment_cells"),
    temporary=True,
)


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in _KEY)


fixed(
    "send_first_bytes",
    "the first byte of a write call whose last byte was in another packet, with a cell width to search",
    columns("flow connection end_byte byte width cell"),
    probes(
        "tcp_segment",
        "SELECT s.flow, s.connection, s.end_byte, s.start_byte AS byte FROM tcp_sends s LEFT JOIN send_packets p"
        f" ON {_same('s', 'p')} WHERE coalesce(p.whole, 0) = 0",
    ),
    needs=("tcp_sends", "send_packets", "tcp_segment_widths"),
    temporary=True,
)
fixed(
    "send_first_packets",
    "a write call, with the time when a packet with its first byte reached a device",
    columns(
        "flow connection end_byte first_ns",
        first_ns="when the packet with its first byte reached a device; NULL: not seen",
    ),
    f"SELECT {', '.join(f'p.{name}' for name in _KEY)}, min(c.queue_ns) AS first_ns"
    f" FROM send_first_bytes p JOIN tcp_segment_cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    needs=("send_first_bytes", "tcp_segment_cells"),
    temporary=True,
)

# Bytes are read in order: the first read up to a message's end or further contains its last byte.
_READINGS: Final = """
    SELECT flow, connection, end_byte, read_ns FROM (
        SELECT flow, connection, end_byte, written, min(at_ns) OVER (
                   PARTITION BY flow, connection ORDER BY end_byte DESC, written ROWS UNBOUNDED PRECEDING) AS read_ns
        FROM (SELECT flow, connection, end_byte, 0 AS written, read_ns AS at_ns FROM tcp_reads
              UNION ALL SELECT flow, connection, end_byte, 1, NULL FROM tcp_sends) both_kinds
    ) found WHERE written = 1 AND read_ns IS NOT NULL"""
fixed(
    "send_reads",
    "a write call, with the read that delivered its last byte",
    columns("flow connection end_byte read_ns", read_ns="when its last byte was read"),
    _READINGS,
    needs=("tcp_sends", "tcp_reads"),
    temporary=True,
)


@relation(
    "retransmissions",
    "a range of bytes that TCP retransmitted",
    columns("flow connection start_byte end_byte time_ns"),
    needs=("original_packets", "tcp_connections", "tcp_anchors"),
    temporary=True,
)
def _retransmissions(context: Context) -> str:
    queue, again = (number(points(context.trace), name) for name in ("tx.queue", "tcp.retransmit"))
    # The kernel reports it after it has given the packet to the device, which may have sent it by then.
    before = "OVER (PARTITION BY flow ORDER BY time_ns)"
    same = f"lag(point) {before} = {queue} AND lag(seq) {before} = seq AND time_ns - lag(time_ns) {before} < {_TOLD_NS}"
    own = f"CASE WHEN {same} THEN lag(time_ns) {before} END"
    return (
        f"SELECT flow, connection, start_byte, start_byte + payload AS end_byte, time_ns FROM ("
        f" SELECT e.flow, e.connection, {place('e.seq')} AS start_byte, e.payload, e.time_ns FROM ("
        f" SELECT e.flow, coalesce(c.connection, 0) AS connection, e.seq, e.len_bytes - e.header_bytes AS payload,"
        f" coalesce(e.own_ns, e.time_ns) AS time_ns, {SLICE} AS slice"
        f" FROM (SELECT *, {own} AS own_ns FROM original_packets WHERE point IN ({queue}, {again})"
        f" AND flow IN (SELECT flow FROM original_packets WHERE point = {again})) e {IN_CONNECTION}"
        f" WHERE e.point = {again} AND e.len_bytes > e.header_bytes) e"
        f" JOIN tcp_anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice) placed"
    )


_SEND: Final = columns("flow connection tid start_byte end_byte call_ns send_ns sent_ns")
fixed(
    "resent_sends",
    "a write call of a flow with retransmissions",
    _SEND,
    "SELECT * FROM tcp_sends WHERE flow IN (SELECT flow FROM retransmissions)",
    needs=("tcp_sends", "retransmissions"),
    temporary=True,
)
cells("resent_send", "resent_sends", _SEND)
cells("retransmission", "retransmissions", columns("flow connection start_byte end_byte time_ns"))
fixed(
    "retransmission_last_bytes",
    "the last byte of a retransmission, with a cell width to search",
    columns("flow connection byte time_ns width cell"),
    probes("resent_send", "SELECT flow, connection, end_byte - 1 AS byte, time_ns FROM retransmissions"),
    needs=("retransmissions", "resent_send_widths"),
    temporary=True,
)
fixed(
    "resent_last_bytes",
    "the last byte of one of `resent_sends`, with a cell width to search",
    columns("flow connection end_byte byte width cell"),
    probes("retransmission", "SELECT flow, connection, end_byte, end_byte - 1 AS byte FROM resent_sends"),
    needs=("resent_sends", "retransmission_widths"),
    temporary=True,
)
fixed(
    "send_retransmits",
    "a write call of which some bytes were retransmitted",
    columns("flow connection end_byte retransmits resent_ns"),
    "SELECT flow, connection, end_byte, count(*) AS retransmits, max(time_ns) AS resent_ns FROM ("
    " SELECT c.flow, c.connection, c.end_byte, p.time_ns FROM retransmission_last_bytes p JOIN resent_send_cells c"
    f" ON {holds('c', 'p')}"
    f" UNION SELECT p.flow, p.connection, p.end_byte, c.time_ns FROM resent_last_bytes p JOIN retransmission_cells c"
    f" ON {holds('c', 'p')}) pairs GROUP BY 1, 2, 3",
    needs=("retransmission_last_bytes", "resent_send_cells", "resent_last_bytes", "retransmission_cells"),
    temporary=True,
)

# When the last byte of a message arrived, and when those of the messages before it in the stream had.
_ARRIVED: Final = "coalesce(p.tcp_ns, p.l4_ns)"
_BEFORE: Final = (
    f"max({_ARRIVED}) OVER (PARTITION BY s.flow, s.connection ORDER BY s.end_byte"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
)
# A call that began to read after the message's end did not read it; the actual read was not seen.
_MESSAGES: Final = f"""
    SELECT s.flow, s.connection, s.start_byte, s.end_byte, s.end_byte - s.start_byte AS len_bytes,
           s.tid AS sender_tid, s.call_ns, s.send_ns, s.sent_ns,
           f.first_ns, {", ".join(f"p.{column}" for column in (*PACKET_COLUMNS, "ready_ns"))},
           r.tid AS reader_tid, r.wake_ns, r.switch_ns, r.copy_ns, r.read_ns, r.received_ns,
           coalesce(t.retransmits, 0) AS retransmits, t.resent_ns, h.sender_host, h.receiver_host,
           CASE WHEN {_BEFORE} > {_ARRIVED} THEN {_BEFORE} END AS order_ns
    FROM tcp_sends s
    LEFT JOIN flow_hosts h ON h.flow = s.flow
    LEFT JOIN send_packets p ON {_same("s", "p")}
    LEFT JOIN send_first_packets f ON {_same("s", "f")}
    LEFT JOIN send_retransmits t ON {_same("s", "t")}
    LEFT JOIN send_reads g ON {_same("s", "g")}
    LEFT JOIN tcp_reads r ON r.flow = g.flow AND r.connection = g.connection AND r.read_ns = g.read_ns
                     AND (r.from_byte IS NULL OR r.from_byte < g.end_byte)"""
fixed(
    "tcp_messages",
    "the data of a send call, with the time when it first passed each point; order not yet checked",
    columns(
        "flow connection start_byte end_byte len_bytes sender_tid call_ns send_ns sent_ns first_ns",
        "neighbour_ns queue_ns",
        "enqueue_ns dequeue_ns start_ns driver_ns core_ns ip_ns l4_ns tcp_ns ready_ns reader_tid wake_ns",
        "switch_ns copy_ns read_ns received_ns retransmits resent_ns sender_host receiver_host order_ns",
        len_bytes="length of the message",
    ),
    _MESSAGES,
    needs=(
        "tcp_sends", "flow_hosts", "send_packets", "send_first_packets", "send_retransmits", "send_reads", "tcp_reads",
    ),
    temporary=True,
)  # fmt: skip
