# SPDX-License-Identifier: Apache-2.0
"""Calls that write to and read from TCP sockets, with the surrounding events of their threads.

A thread makes one call after the other, so that the events of a call are consecutive in the thread's order of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.messages.segments import SLICE_NS, difference, number, place
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

_ANCHOR: Final = "JOIN tcp_anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice"


@relation(
    "tcp_sends",
    "a call that wrote to a TCP socket",
    columns("flow connection tid start_byte end_byte call_ns send_ns sent_ns"),
    needs=("tcp_socket_events", "tcp_anchors"),
    temporary=True,
)
def _tcp_sends(context: Context) -> str:
    return _sends(points(context.trace))


# Selecting rows before the window functions makes DuckDB four times as fast.
@relation(
    "tcp_reader_events",
    "a read, copy, wake-up or context switch of a reading thread",
    columns("tid time_ns point"),
    needs=("tcp_socket_events",),
    temporary=True,
)
def _tcp_reader_events(context: Context) -> str:
    return _around(points(context.trace))


@relation(
    "tcp_reads",
    "a read of a TCP socket, with the surrounding events of its thread",
    columns(
        "flow connection tid sock read_ns end_byte from_byte received_ns copy_ns wake_ns switch_ns",
        end_byte="offset after the last byte that was read",
    ),
    needs=("tcp_socket_events", "tcp_anchors", "tcp_reader_events"),
    temporary=True,
)
def _tcp_reads(context: Context) -> str:
    return _reads(points(context.trace))


def _sends(numbers: dict[str, int]) -> str:
    """Return the query for send calls: their bytes, and when the call began, acquired the socket lock, and ended.

    If the end of a call is missing, it is assumed to have written everything that was requested.
    """
    enter, send, sent = (number(numbers, name) for name in ("call.enter", "tx.send", "tx.sent"))
    thread = "OVER (PARTITION BY tid ORDER BY time_ns)"
    entered, wrote = (f"CASE WHEN point = {each} THEN time_ns END" for each in (enter, send))
    return f"""
        SELECT e.flow, e.connection, e.tid,
               {place("e.seq")} - CASE WHEN e.point = {sent} THEN e.len_bytes ELSE 0 END AS start_byte,
               {place("e.seq")} + CASE WHEN e.point = {send} THEN e.len_bytes ELSE 0 END AS end_byte,
               CASE WHEN entered_ns IS NOT NULL THEN entered_ns
                    WHEN e.point = {sent} AND wrote_ns IS NOT NULL THEN earlier_ns END AS call_ns,
               CASE WHEN e.point = {send} THEN e.time_ns ELSE wrote_ns END AS send_ns,
               CASE WHEN e.point = {sent} THEN e.time_ns END AS sent_ns
        FROM (SELECT *, time_ns - time_ns % {SLICE_NS} AS slice, lag({entered}) {thread} AS entered_ns,
                     lag({wrote}) {thread} AS wrote_ns, lag({entered}, 2) {thread} AS earlier_ns,
                     lead(CASE WHEN point = {sent} THEN 1 END) {thread} AS goes_on
              FROM (SELECT flow, connection, time_ns, point, tid, seq, len_bytes
                    FROM tcp_socket_events WHERE point IN ({send}, {sent})
                    UNION ALL SELECT 0, 0, time_ns, point, tid, 0, 0 FROM sockets WHERE point = {enter}) calls
             ) e {_ANCHOR}
        WHERE e.len_bytes > 0 AND (e.point = {sent} OR (e.point = {send} AND goes_on IS NULL))"""


def _reads(numbers: dict[str, int]) -> str:
    """Return the query for reads: the last byte, the reader, and the events of the reader before and after.

    ``from_byte`` is where the receive call began to read, NULL if its return was not seen, i.e. if the next return in
    the thread belongs to another call.
    """
    read, received = number(numbers, "rx.read"), number(numbers, "rx.received")
    into = f"{difference('r.seq', 'e.seq')}"
    own = f"{into} >= 0 AND {into} < r.len_bytes"
    return f"""
        SELECT e.flow, e.connection, e.tid, e.sock, e.time_ns AS read_ns, {place("e.seq")} AS end_byte,
               CASE WHEN {own} THEN {place("e.seq")} + {into} - r.len_bytes END AS from_byte,
               CASE WHEN {own} THEN r.time_ns END AS received_ns, b.copy_ns, b.wake_ns, b.switch_ns
        FROM tcp_socket_events e {_ANCHOR}
        JOIN ({_one_a_time(_before_reads(numbers), "copy_ns", "wake_ns", "switch_ns")}) b
          ON b.tid = e.tid AND b.time_ns = e.time_ns
        LEFT JOIN ({_one_a_time(_returns(read, received), "received_ns")}) n ON n.tid = e.tid AND n.time_ns = e.time_ns
        LEFT JOIN ({_one_a_time(f"SELECT * FROM sockets WHERE point = {received}", "seq", "len_bytes")}) r
               ON r.tid = n.tid AND r.time_ns = n.received_ns
        WHERE e.point = {read}"""


def _one_a_time(query: str, *names: str) -> str:
    """Return the query for one row a thread and time, as a thread cannot read twice at once.

    Where a recording says that it did, joins by thread and time would have the cube of the rows.
    """
    found = ", ".join(f"max({name}) AS {name}" for name in names)
    return f"SELECT tid, time_ns, {found} FROM ({query}) every_one GROUP BY tid, time_ns"


def _around(numbers: dict[str, int]) -> str:
    """Return the query for reads, and for the copies, wake-ups and context switches of their threads."""
    read, copy, wake, switch = (number(numbers, name) for name in ("rx.read", "rx.copy", "sched.wake", "sched.switch"))
    readers = f"(SELECT DISTINCT tid FROM tcp_socket_events WHERE point = {read})"
    return f"""
        SELECT tid, time_ns, point FROM tcp_socket_events WHERE point = {read}
        UNION ALL SELECT tid, time_ns, point FROM packets WHERE point = {copy} AND tid IN {readers}
        UNION ALL SELECT CAST(subject AS INTEGER), time_ns, point FROM cpu
                  WHERE point IN ({wake}, {switch}) AND subject IN {readers}"""


def _before_reads(numbers: dict[str, int]) -> str:
    """Return the query for the last copy, wake-up and switch to the thread before each read."""
    kinds = (("copy_ns", "rx.copy"), ("wake_ns", "sched.wake"), ("switch_ns", "sched.switch"))
    last = ", ".join(
        f"{last_known(f'CASE WHEN point = {number(numbers, point)} THEN time_ns END')} OVER"
        f" (PARTITION BY tid ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS {name}"
        for name, point in kinds
    )
    return f"SELECT * FROM (SELECT *, {last} FROM tcp_reader_events) found WHERE point = {number(numbers, 'rx.read')}"


def _returns(read: int, received: int) -> str:
    """Return the query for the next return of a receive call on the same socket in the same thread."""
    return f"""
        SELECT * FROM (
            SELECT tid, time_ns, point, {last_known(f"CASE WHEN point = {received} THEN time_ns END")} OVER (
                       PARTITION BY tid, sock ORDER BY time_ns DESC ROWS UNBOUNDED PRECEDING) AS received_ns
            FROM (SELECT tid, sock, time_ns, point FROM tcp_socket_events WHERE point = {read}
                  UNION ALL SELECT tid, sock, time_ns, point FROM sockets
                            WHERE point = {received} AND protocol = 6 AND len_bytes > 0) calls
        ) found WHERE point = {read}"""
