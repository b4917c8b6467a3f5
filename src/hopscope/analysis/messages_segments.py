# SPDX-License-Identifier: Apache-2.0
"""Bytes of TCP flows that packets carried past the probe points: ``segments``, one row a range of bytes.

Sequence numbers start anew every 4 GiB and with every connection of the same addresses and ports. Here a byte has a
place (64 bits) in its connection that nothing else has: the way from one event to the next is the signed difference of
their 32-bit numbers. That is right while two events that follow each other are within 2 GiB, and a receive window has
no more than 1 GiB. The sum is made over slices of time, not over events: a slice is so short that no link carries
2 GiB in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.host_numbers import host_of_cpu
from hopscope.analysis.messages_path import BY_COLUMN, PACKET_COLUMNS, SENT
from hopscope.analysis.names import points
from hopscope.analysis.translations import wanted_flow
from hopscope.store.engine import last_known

if TYPE_CHECKING:
    from hopscope.analysis.selection import Selection
    from hopscope.store.trace import Trace

# 17 ms; in 2 GiB a slice that is a terabit a second.
SLICE_NS: Final = 1 << 24
WRAP: Final = 1 << 32
TCP: Final = 6
_SYN: Final = 2
# Points where headers are always looked at.
_TELLING: Final = ("queue_ns", "driver_ns", "tcp_ns")
_NEVER_NS: Final = (1 << 63) - 1


def make_segments(trace: Trace, selection: Selection) -> None:
    """Make the tables ``connections``, ``stream_events``, ``anchors`` and ``segments`` of the wanted flows.

    The views of :mod:`hopscope.analysis.translations` and the table ``flow_hosts`` must be there.
    """
    numbers = points(trace)
    wanted = wanted_flow(trace, selection, "e.flow")
    trace.make_table("connections", connections(numbers, "followed_packets"))
    trace.make_table("stream_events", _stream_events(numbers, wanted))
    # Without calls that write, nobody asks what packets carried.
    sent = trace.rows("SELECT 1 FROM stream_events LIMIT 1")
    trace.make_table("carried", _carried(numbers, wanted if sent else "FALSE"))
    events = f"SELECT {ANCHORED} FROM carried UNION ALL SELECT {ANCHORED} FROM stream_events"
    trace.make_table("anchors", anchors(events))
    trace.make_table("segments", _SEGMENTS)
    trace.drop("carried")


def place(seq: str, anchor: str = "a") -> str:
    """Return SQL for the place of the byte with a sequence number, near an anchor."""
    return f"CAST({anchor}.place + {difference(seq, f'{anchor}.seq')} AS BIGINT)"


def difference(later: str, earlier: str) -> str:
    """Return SQL for the signed difference of two 32-bit numbers."""
    half = WRAP // 2
    return f"(({later} - {earlier} + {WRAP + half}) % {WRAP} - {half})"


def number(numbers: dict[str, int], name: str) -> int:
    """Return a point's number in the trace; one that no event has, if the trace does not know the point."""
    return numbers.get(name, -1)


def connections(numbers: dict[str, int], packets: str) -> str:
    """Return the query for connections: each SYN with another number begins another one between the same ends.

    What came before the first one that was seen is connection 0. Where a packet is freed, something else may be in the
    place of its headers.
    """
    told = ", ".join(str(number(numbers, BY_COLUMN[column].point)) for column in _TELLING)
    return f"""
        SELECT flow, first_ns AS from_ns, row_number() OVER (PARTITION BY flow ORDER BY first_ns) AS connection,
               coalesce(lead(first_ns) OVER (PARTITION BY flow ORDER BY first_ns), {_NEVER_NS}) AS until_ns
        FROM (SELECT flow, seq, min(time_ns) AS first_ns FROM {packets}
              WHERE flow <> 0 AND point IN ({told}) AND tcp_flags % {2 * _SYN} >= {_SYN} GROUP BY flow, seq) syns"""


IN_CONNECTION: Final = (
    "LEFT JOIN connections c ON c.flow = e.flow AND e.time_ns >= c.from_ns AND e.time_ns < c.until_ns"
)
SLICE: Final = f"e.time_ns - e.time_ns % {SLICE_NS}"


def _carried(numbers: dict[str, int], wanted: str) -> str:
    """Return the query for what each packet carried, and when it passed which point.

    Points inside of the stack do not look at the headers, unless a filter made them: there, a packet's flow is that of
    the last point that always does, with the same skb. A segment that GSO has cut begins with the driver; where that
    hands it over to the receiver, the flow is found there. Points where a packet cannot be after the one that told its
    flow belong to another packet, of which that point was not seen.
    """
    known = {column: number(numbers, BY_COLUMN[column].point) for column in PACKET_COLUMNS}
    listed = ", ".join(map(str, known.values()))
    times = ", ".join(f"min(CASE WHEN point = {each} THEN time_ns END) AS {name}" for name, each in known.items())
    return f"""
        SELECT e.flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice, e.time_ns, e.seq, e.payload,
               {", ".join(_after(column, known) for column in PACKET_COLUMNS)}
        FROM (SELECT told_ns AS time_ns, {_told(known)}, {times}, {host_of_cpu("max(cpu)")} AS host
              FROM (SELECT *, {_told_ns(known)} AS told_ns
                    FROM (SELECT skb, point, flow, seq, len_bytes - header_bytes AS payload, tcp_flags, time_ns, cpu
                          FROM followed_packets WHERE point IN ({listed})) passed) named
              GROUP BY skb, told_ns) e {IN_CONNECTION} LEFT JOIN flow_hosts h ON h.flow = e.flow
        WHERE e.tcp_flags <> 0 AND e.payload > 0 AND {wanted}"""


def _tells(known: dict[str, int]) -> str:
    """Return SQL for whether an event tells its packet's flow."""
    return f"flow <> 0 AND point IN ({', '.join(str(known[column]) for column in _TELLING)})"


def _told(known: dict[str, int]) -> str:
    """Return SQL for what the point that looked at the headers said; there is one of it in each group."""
    columns = ("flow", "seq", "payload", "tcp_flags", "point")
    return ", ".join(f"max(CASE WHEN {_tells(known)} THEN {name} END) AS {name}" for name in columns)


def _told_ns(known: dict[str, int]) -> str:
    """Return SQL for the time of the event that tells an event's flow."""
    own = "OVER (PARTITION BY skb ORDER BY time_ns)"
    queued = ", ".join(str(known[name]) for name in ("queue_ns", "enqueue_ns", "dequeue_ns"))
    cut = (
        f"point = {known['start_ns']} AND lead(point) {own} = {known['driver_ns']}"
        f" AND coalesce(lag(point) {own}, 0) NOT IN ({queued})"
    )
    before = "OVER (PARTITION BY skb ORDER BY time_ns ROWS UNBOUNDED PRECEDING)"
    last = f"{last_known(f'CASE WHEN {_tells(known)} THEN time_ns END')} {before}"
    return f"CASE WHEN {cut} THEN lead(time_ns) {own} ELSE {last} END"


def _after(column: str, known: dict[str, int]) -> str:
    """Return SQL for a packet's time at a point, NULL if it cannot be there after the point that told its flow.

    Of hosts on the way, the sender's is that where packets are sent, and the receiver's that where they come.
    """
    end = "h.sender_host" if column in SENT else "coalesce(h.receiver_host, h.sender_host)"
    at = f"coalesce({end} = e.host, TRUE)"
    if column == "tcp_ns":
        told = [known[column]]
    elif column in {"driver_ns", "core_ns", "ip_ns", "l4_ns"}:
        told = [known["driver_ns"], known["queue_ns"]]
    elif column == "start_ns":
        cut = f"(e.point = {known['driver_ns']} AND e.start_ns < e.time_ns)"
        return f"CASE WHEN {at} AND (e.point = {known['queue_ns']} OR {cut}) THEN e.start_ns END AS start_ns"
    else:
        told = [known["queue_ns"]]
    return f"CASE WHEN {at} AND e.point IN ({', '.join(map(str, told))}) THEN e.{column} END AS {column}"


def _stream_events(numbers: dict[str, int], wanted: str) -> str:
    """Return the query for what sockets say of the stream: calls that write and read."""
    listed = ", ".join(str(number(numbers, name)) for name in ("tx.send", "tx.sent", "rx.read"))
    return f"""
        SELECT e.flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice,
               e.time_ns, e.point, e.tid, e.sock, e.seq, e.len_bytes
        FROM followed_sockets e {IN_CONNECTION}
        WHERE e.point IN ({listed}) AND e.protocol = {TCP} AND {wanted}"""


ANCHORED: Final = "flow, connection, slice, seq, time_ns"


def anchors(events: str) -> str:
    """Return the query for the place of one byte in each slice of each connection; `events` gives :data:`ANCHORED`."""
    return f"""
        SELECT flow, connection, slice, seq,
               sum(step) OVER (PARTITION BY flow, connection ORDER BY slice ROWS UNBOUNDED PRECEDING) AS place
        FROM (SELECT flow, connection, slice, seq,
                     coalesce({difference("seq", "lag(seq) OVER (PARTITION BY flow, connection ORDER BY slice)")},
                              seq + {WRAP}) AS step
              FROM (SELECT flow, connection, slice, min_by(seq, time_ns) AS seq
                    FROM ({events}) events GROUP BY flow, connection, slice) firsts) steps"""


_SEGMENTS: Final = f"""
    SELECT e.flow, e.connection, {place("e.seq")} AS start_byte, {place("e.seq")} + e.payload AS end_byte,
           {", ".join(f"min(e.{column}) AS {column}" for column in PACKET_COLUMNS)}
    FROM carried e JOIN anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice
    GROUP BY 1, 2, 3, 4"""
