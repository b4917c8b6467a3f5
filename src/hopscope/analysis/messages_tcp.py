# SPDX-License-Identifier: Apache-2.0
"""Messages of TCP: what one send call wrote, followed to the read that delivers its last byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.host_numbers import host_of_cpu
from hopscope.analysis.messages_calls import make_calls
from hopscope.analysis.messages_hosts import make_flow_hosts
from hopscope.analysis.messages_join import holds, make_cells, make_probes
from hopscope.analysis.messages_path import PACKET_COLUMNS
from hopscope.analysis.messages_segments import (
    IN_CONNECTION,
    SLICE,
    make_segments,
    number,
    place,
)
from hopscope.analysis.names import points
from hopscope.store.engine import last_known

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

_KEY: Final = ("flow", "connection", "end_byte")
_SCRATCH: Final = (
    "connections", "flow_hosts", "stream_events", "anchors", "segments", "told", "cells", "cells_widths",
    "last_bytes", "first_bytes", "first_packets", "packets_of_messages", "reads_of_messages", "retransmitted",
    "retransmits",
)  # fmt: skip


def make_tcp_messages(trace: Trace, selection: Selection) -> None:
    """Make the table ``tcp_messages``: a row a send call, with what was seen of it, not yet checked for order.

    The tables ``sends`` and ``reads`` (:func:`hopscope.analysis.messages_calls.make_calls`) are left for others.
    """
    numbers = points(trace)
    make_flow_hosts(trace)
    make_segments(trace, selection)
    make_calls(trace)
    trace.make_table("told", _told(number(numbers, "rx.ready")))
    make_cells(trace, "cells", "told")
    _find_packets(trace)
    trace.make_table("reads_of_messages", _READINGS)
    _count_retransmits(trace, number(numbers, "tcp.retransmit"))
    trace.make_table("tcp_messages", _MESSAGES)
    trace.drop(*_SCRATCH)


# Of which flows the receiver is another host than one that was told.
_ELSEWHERE: Final = (
    "SELECT f.flow, h.host FROM flow_hosts f JOIN hosts h ON h.host <> f.receiver_host"
    " WHERE f.receiver_host IS NOT NULL"
)


def _told(ready: int) -> str:
    """Return the query for the segments, with the first time that the reader of the flow was told after each."""
    return f"""
        SELECT * FROM (
            SELECT *, CASE WHEN coalesce(tcp_ns, l4_ns) IS NOT NULL THEN
                       {last_known("told_ns")} OVER (PARTITION BY flow ORDER BY at_ns DESC ROWS UNBOUNDED PRECEDING)
                      END AS ready_ns
            FROM (SELECT *, coalesce(tcp_ns, l4_ns) AS at_ns, CAST(NULL AS BIGINT) AS told_ns FROM segments
                  UNION ALL
                  SELECT flow, NULL, NULL, NULL, {", ".join("NULL" for _ in PACKET_COLUMNS)}, time_ns, time_ns
                  FROM followed_sockets WHERE point = {ready} AND flow IN (SELECT flow FROM segments)
                       AND (flow, {host_of_cpu("cpu")}) NOT IN ({_ELSEWHERE})) both_kinds
        ) found WHERE start_byte IS NOT NULL"""


def _find_packets(trace: Trace) -> None:
    """Make ``packets_of_messages``: when a packet with the message's last byte was first where, and with its first."""
    make_probes(trace, "last_bytes", "cells", f"SELECT {', '.join(_KEY)}, end_byte - 1 AS byte, start_byte FROM sends")
    times = ", ".join(f"min(c.{column}) AS {column}" for column in (*PACKET_COLUMNS, "ready_ns"))
    trace.make_table(
        "packets_of_messages",
        f"SELECT {', '.join(f'p.{name}' for name in _KEY)}, {times},"
        " max(CASE WHEN c.start_byte <= p.start_byte THEN 1 ELSE 0 END) AS whole"
        f" FROM last_bytes p JOIN cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    )
    split = (
        f"SELECT s.flow, s.connection, s.end_byte, s.start_byte AS byte FROM sends s LEFT JOIN packets_of_messages p"
        f" ON {_same('s', 'p')} WHERE coalesce(p.whole, 0) = 0"
    )
    make_probes(trace, "first_bytes", "cells", split)
    trace.make_table(
        "first_packets",
        f"SELECT {', '.join(f'p.{name}' for name in _KEY)}, min(c.queue_ns) AS first_ns"
        f" FROM first_bytes p JOIN cells c ON {holds('c', 'p')} GROUP BY 1, 2, 3",
    )


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in _KEY)


# Bytes are read in order: the first read that goes up to a message's end or further has its last byte.
_READINGS: Final = """
    SELECT flow, connection, end_byte, read_ns FROM (
        SELECT flow, connection, end_byte, written, min(at_ns) OVER (
                   PARTITION BY flow, connection ORDER BY end_byte DESC, written ROWS UNBOUNDED PRECEDING) AS read_ns
        FROM (SELECT flow, connection, end_byte, 0 AS written, read_ns AS at_ns FROM reads
              UNION ALL SELECT flow, connection, end_byte, 1, NULL FROM sends) both_kinds
    ) found WHERE written = 1 AND read_ns IS NOT NULL"""


def _count_retransmits(trace: Trace, point: int) -> None:
    """Make ``retransmits``: how many retransmissions have bytes of a message, and when the last was."""
    trace.make_table(
        "retransmitted",
        f"SELECT flow, connection, start_byte, start_byte + payload AS end_byte, time_ns FROM ("
        f" SELECT e.flow, e.connection, {place('e.seq')} AS start_byte, e.payload, e.time_ns FROM ("
        f" SELECT e.flow, coalesce(c.connection, 0) AS connection, e.seq, e.len_bytes - e.header_bytes AS payload,"
        f" e.time_ns, {SLICE} AS slice FROM followed_packets e {IN_CONNECTION}"
        f" WHERE e.point = {point} AND e.len_bytes > e.header_bytes) e"
        f" JOIN anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice) placed",
    )
    affected = "SELECT * FROM sends WHERE flow IN (SELECT flow FROM retransmitted)"
    trace.make_table("resent", affected)
    make_cells(trace, "resent_cells", "resent")
    make_cells(trace, "again_cells", "retransmitted")
    make_probes(
        trace,
        "again_bytes",
        "resent_cells",
        "SELECT flow, connection, end_byte - 1 AS byte, time_ns FROM retransmitted",
    )
    make_probes(
        trace, "resent_bytes", "again_cells", "SELECT flow, connection, end_byte, end_byte - 1 AS byte FROM resent"
    )
    trace.make_table(
        "retransmits",
        "SELECT flow, connection, end_byte, count(*) AS retransmits, max(time_ns) AS resent_ns FROM ("
        " SELECT c.flow, c.connection, c.end_byte, p.time_ns FROM again_bytes p JOIN resent_cells c"
        f" ON {holds('c', 'p')}"
        f" UNION SELECT p.flow, p.connection, p.end_byte, c.time_ns FROM resent_bytes p JOIN again_cells c"
        f" ON {holds('c', 'p')}) pairs GROUP BY 1, 2, 3",
    )
    trace.drop("resent", "resent_cells", "resent_cells_widths", "again_cells", "again_cells_widths", "again_bytes")
    trace.drop("resent_bytes")


# A read of a call that began to read behind the message's end is not the one that read it: that one was not seen.
_MESSAGES: Final = f"""
    SELECT s.flow, s.connection, s.start_byte, s.end_byte, s.end_byte - s.start_byte AS len_bytes,
           s.tid AS sender_tid, s.call_ns, s.send_ns, s.sent_ns,
           f.first_ns, {", ".join(f"p.{column}" for column in (*PACKET_COLUMNS, "ready_ns"))},
           r.tid AS reader_tid, r.wake_ns, r.switch_ns, r.copy_ns, r.read_ns, r.received_ns,
           coalesce(t.retransmits, 0) AS retransmits, t.resent_ns, h.sender_host, h.receiver_host
    FROM sends s
    LEFT JOIN flow_hosts h ON h.flow = s.flow
    LEFT JOIN packets_of_messages p ON {_same("s", "p")}
    LEFT JOIN first_packets f ON {_same("s", "f")}
    LEFT JOIN retransmits t ON {_same("s", "t")}
    LEFT JOIN reads_of_messages g ON {_same("s", "g")}
    LEFT JOIN reads r ON r.flow = g.flow AND r.connection = g.connection AND r.read_ns = g.read_ns
                     AND (r.from_byte IS NULL OR r.from_byte < g.end_byte)"""
