# SPDX-License-Identifier: Apache-2.0
"""What was recorded of the contents of requests and answers (``record --bytes``), by their place in the stream.

A turn begins with a send call, and so, in most cases, with a packet. What is needed of it is its beginning: of long
turns, packets further behind are left out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.messages.segments import IN_CONNECTION, SLICE, TCP, WRAP, place
from hopscope.trace.messages.udp import UDP
from hopscope.trace.relation import columns, fixed

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

# Of a turn.
_MOST_BYTES: Final = 1 << 16

# A packet passes several points, and may be sent again: what is longest of it.
_PAYLOADS: Final = f"""
    SELECT flow, connection, start_byte, max(len_bytes) AS len_bytes, max(data) AS data, max(begins) AS begins FROM (
        SELECT e.flow, e.connection, {place("e.seq")} AS start_byte, e.len_bytes, e.data, e.begins
        FROM (SELECT e.flow, coalesce(c.connection, 0) AS connection, e.seq, e.len_bytes, e.data, {SLICE} AS slice,
                     CASE WHEN e.seq = (c.syn_seq + 1) % {WRAP} THEN 1 ELSE 0 END AS begins
              FROM original_payloads e {IN_CONNECTION}
              WHERE e.flow IN (SELECT flow FROM flows WHERE protocol = {TCP})) e
        JOIN tcp_anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice) placed
    GROUP BY 1, 2, 3"""

# The first turn of a connection whose beginning was recorded by its server alone begins with the connection's data.
_TURNS: Final = f"""
    SELECT e.forth AS flow, e.connection, coalesce(e.asked_byte - e.request_bytes, f.start_byte) AS start_byte
    FROM exchanges e LEFT JOIN first_bytes f ON f.flow = e.forth AND f.connection = e.connection
    WHERE e.protocol = {TCP}
    UNION
    SELECT e.back, e.connection, coalesce(e.answered_byte - e.answer_bytes, f.start_byte)
    FROM exchanges e LEFT JOIN first_bytes f ON f.flow = e.back AND f.connection = e.connection
    WHERE e.protocol = {TCP}"""

_BEHIND: Final = f"""
    SELECT flow, connection, start_byte, len_bytes, data FROM (
        SELECT *, {last_known("CASE WHEN data IS NULL THEN start_byte END")} OVER (
                   PARTITION BY flow, connection ORDER BY start_byte, len_bytes ROWS UNBOUNDED PRECEDING) AS turn_byte
        FROM (SELECT flow, connection, start_byte, len_bytes, data FROM tcp_payloads
              UNION ALL SELECT flow, connection, start_byte, 0, NULL FROM turns WHERE start_byte IS NOT NULL) both_kinds
    ) placed WHERE data IS NOT NULL AND start_byte - turn_byte < {_MOST_BYTES}"""

fixed(
    "tcp_payloads",
    "the beginning of what a segment of TCP carried",
    columns(
        "flow connection start_byte len_bytes data begins",
        len_bytes="length of all that the segment carried",
        data="its first bytes, two hexadecimal digits each",
        begins="1: its first byte follows the SYN; 0: another one, or not known",
    ),
    _PAYLOADS,
    needs=("original_payloads", "tcp_connections", "tcp_anchors"),
    temporary=True,
)
fixed(
    "first_bytes",
    "a connection whose first bytes were recorded, with the place of the first one",
    columns("flow connection start_byte", start_byte="offset of the first byte in the connection"),
    "SELECT flow, connection, min(start_byte) AS start_byte FROM tcp_payloads WHERE begins = 1 GROUP BY 1, 2",
    needs=("tcp_payloads",),
)
fixed(
    "turns",
    "a turn of an end of a TCP connection",
    columns("flow connection start_byte", start_byte="offset of its first byte; NULL: not known"),
    _TURNS,
    needs=("exchanges", "first_bytes"),
    temporary=True,
)
fixed(
    "stream_contents",
    "the beginning of what a segment at the beginning of a turn carried",
    columns(
        "flow connection start_byte len_bytes data",
        len_bytes="length of all that the segment carried",
        data="its first bytes, two hexadecimal digits each",
    ),
    _BEHIND,
    needs=("tcp_payloads", "turns"),
)
fixed(
    "datagram_contents",
    "the beginning of a datagram",
    columns(
        "flow place len_bytes data",
        place="its position in the order of the flow",
        len_bytes="its length",
        data="its first bytes, two hexadecimal digits each",
    ),
    f"""
    SELECT m.flow, m.place, max(p.len_bytes) AS len_bytes, max(p.data) AS data FROM ordered_messages m
    JOIN payloads p ON p.time_ns = coalesce(m.first_ns, m.queue_ns) AND p.flow = m.flow
    WHERE m.protocol = {UDP} GROUP BY 1, 2""",
    needs=("ordered_messages",),
)


def has_contents(trace: Trace) -> bool:
    """Return whether contents were recorded."""
    return bool(trace.rows("SELECT 1 FROM payloads LIMIT 1"))
