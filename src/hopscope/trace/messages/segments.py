# SPDX-License-Identifier: Apache-2.0
"""Bytes of TCP flows carried by packets past the probe points.

Sequence numbers wrap every 4 GiB and restart with every connection of the same addresses and ports. Here, a byte has a
unique 64-bit offset in its connection: offsets are accumulated from the signed differences of the 32-bit numbers of
consecutive events. This is correct as long as consecutive events are within 2 GiB; a receive window has at most 1 GiB.
Differences are summed over time slices, not over events: a slice is so short that no link carries 2 GiB in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.messages.path import BY_COLUMN, PACKET_COLUMNS, SENT
from hopscope.trace.names import points
from hopscope.trace.packets.translations import wanted_flow
from hopscope.trace.relation import SELECTION, columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

# 17 ms; in 2 GiB a slice that is a terabit a second.
SLICE_NS: Final = 1 << 24
WRAP: Final = 1 << 32
TCP: Final = 6
_SYN: Final = 2
# Points at which headers are always parsed.
_LOOKS: Final = ("neighbour_ns", "queue_ns", "dequeue_ns", "driver_ns", "tcp_ns")
_NEVER_NS: Final = (1 << 63) - 1


def flows_of(context: Context) -> Selection:
    """Return the selection without its processes, as messages are attributed to processes more exactly than sockets."""
    return replace(context.selection, processes=())


@relation(
    "tcp_connections",
    "a TCP connection, beginning with its SYN",
    columns(
        "flow from_ns connection until_ns syn_seq",
        from_ns="when its SYN was first seen",
        until_ns="when the SYN of the next connection was first seen; 2^63 - 1: none",
        syn_seq="its number: the first byte has the next one",
    ),
    needs=("original_packets",),
    temporary=True,
)
def _tcp_connections(context: Context) -> str:
    return connections(points(context.trace), "original_packets")


@relation(
    "tcp_socket_events",
    "a position in the stream of a socket: a call writes or reads",
    columns("flow connection slice time_ns point tid sock seq len_bytes"),
    needs=("tcp_connections", "original_sockets", "flow_translations"),
    parameters=(SELECTION,),
    temporary=True,
)
def _tcp_socket_events(context: Context) -> str:
    return _socket_events(points(context.trace), _wanted(context))


@relation(
    "tcp_packets",
    "the payload of a packet, with the time at each point",
    columns(
        "flow connection slice time_ns skb seq payload neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns",
        "core_ns",
        "ip_ns l4_ns tcp_ns",
        time_ns="when its headers were inspected",
    ),
    needs=("tcp_connections", "tcp_socket_events", "original_packets", "flow_translations", "flow_hosts"),
    parameters=(SELECTION,),
    temporary=True,
)
def _tcp_packets(context: Context) -> str:
    # Without write calls, the payload of packets is not needed.
    sent = context.trace.rows("SELECT 1 FROM tcp_socket_events LIMIT 1")
    return _carried(points(context.trace), _wanted(context) if sent else "FALSE")


def _wanted(context: Context) -> str:
    return wanted_flow(context.trace, flows_of(context), "e.flow")


def place(seq: str, anchor: str = "a") -> str:
    """Return SQL for the offset of the byte with a sequence number, near an anchor."""
    return f"CAST({anchor}.place + {difference(seq, f'{anchor}.seq')} AS BIGINT)"


def difference(later: str, earlier: str) -> str:
    """Return SQL for the signed difference of two 32-bit numbers."""
    half = WRAP // 2
    return f"(({later} - {earlier} + {WRAP + half}) % {WRAP} - {half})"


def number(numbers: dict[str, int], name: str) -> int:
    """Return the number of a point in the trace, or a number without events if the trace does not have the point."""
    return numbers.get(name, -1)


def connections(numbers: dict[str, int], packets: str) -> str:
    """Return the query for connections: each SYN with a different number begins a new one between the same endpoints.

    Data before the first observed SYN belongs to connection 0. When a packet is freed, its headers may already be
    overwritten.
    """
    told = ", ".join(str(number(numbers, BY_COLUMN[column].point)) for column in _LOOKS)
    return f"""
        SELECT flow, first_ns AS from_ns, row_number() OVER (PARTITION BY flow ORDER BY first_ns) AS connection,
               coalesce(lead(first_ns) OVER (PARTITION BY flow ORDER BY first_ns), {_NEVER_NS}) AS until_ns,
               seq AS syn_seq
        FROM (SELECT flow, seq, min(time_ns) AS first_ns FROM {packets}
              WHERE flow <> 0 AND point IN ({told}) AND tcp_flags % {2 * _SYN} >= {_SYN} GROUP BY flow, seq) syns"""


IN_CONNECTION: Final = (
    "LEFT JOIN tcp_connections c ON c.flow = e.flow AND e.time_ns >= c.from_ns AND e.time_ns < c.until_ns"
)
SLICE: Final = f"e.time_ns - e.time_ns % {SLICE_NS}"


# With Fast Open, a SYN carries data: they are behind the number of the SYN itself.
_FIRST_BYTE: Final = f"(e.seq + CASE WHEN e.tcp_flags % {2 * _SYN} >= {_SYN} THEN 1 ELSE 0 END) % {WRAP}"


def _carried(numbers: dict[str, int], wanted: str) -> str:
    """Return the query for the payload of each packet, and the time at each point.

    Points within the stack do not parse headers, unless a filter requires it: there, the flow of a packet is that of
    the last parsing point with the same skb. A GSO segment begins with the driver; if the driver passes it to the
    receiver, its flow is found there. Points that cannot follow the one with the flow belong to another packet, whose
    parsing point was not seen.
    """
    known = {column: number(numbers, BY_COLUMN[column].point) for column in PACKET_COLUMNS}
    listed = ", ".join(map(str, known.values()))
    times = ", ".join(f"min(CASE WHEN point = {each} THEN time_ns END) AS {name}" for name, each in known.items())
    return f"""
        SELECT e.flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice, e.time_ns, e.skb,
               {_FIRST_BYTE} AS seq, e.payload,
               {", ".join(_after(column, known) for column in PACKET_COLUMNS)}
        FROM (SELECT flow_ns AS time_ns, skb, {_looked_at(known)}, {times}, {host_of_cpu("max(cpu)")} AS host
              FROM (SELECT *, {_flow_ns(known)} AS flow_ns
                    FROM (SELECT skb, point, flow, seq, len_bytes - header_bytes AS payload, tcp_flags, time_ns, cpu
                          FROM original_packets WHERE point IN ({listed})) passed) named
              GROUP BY skb, flow_ns) e {IN_CONNECTION} LEFT JOIN flow_hosts h ON h.flow = e.flow
        WHERE e.tcp_flags <> 0 AND e.payload > 0 AND {wanted}"""


def _looks(known: dict[str, int]) -> str:
    """Return SQL for whether an event has the flow of its packet."""
    return f"flow <> 0 AND point IN ({', '.join(str(known[column]) for column in _LOOKS)})"


def _looked_at(known: dict[str, int]) -> str:
    """Return SQL for a value at the point that parsed the headers; each group has one."""
    columns = ("flow", "seq", "payload", "tcp_flags", "point")
    return ", ".join(f"max(CASE WHEN {_looks(known)} THEN {name} END) AS {name}" for name in columns)


def _flow_ns(known: dict[str, int]) -> str:
    """Return SQL for the time of the event from which an event's flow is known."""
    own = "OVER (PARTITION BY skb ORDER BY time_ns)"
    queued = ", ".join(str(known[name]) for name in ("queue_ns", "enqueue_ns", "dequeue_ns"))
    cut = (
        f"point = {known['start_ns']} AND lead(point) {own} = {known['driver_ns']}"
        f" AND coalesce(lag(point) {own}, 0) NOT IN ({queued})"
    )
    before = "OVER (PARTITION BY skb ORDER BY time_ns ROWS UNBOUNDED PRECEDING)"
    last = f"{last_known(f'CASE WHEN {_looks(known)} THEN time_ns END')} {before}"
    return f"CASE WHEN {cut} THEN lead(time_ns) {own} ELSE {last} END"


def _after(column: str, known: dict[str, int]) -> str:
    """Return SQL for a packet's time at a point, NULL if the point cannot follow the one with its flow.

    With several hosts, points of sending count on the sender, and points of reception on the receiver.
    """
    end = "h.sender_host" if column in SENT else "coalesce(h.receiver_host, h.sender_host)"
    at = f"coalesce({end} = e.host, TRUE)"
    sent = [known["queue_ns"], known["dequeue_ns"]]
    if column in {"tcp_ns", "neighbour_ns"}:
        told = [known[column]]
    elif column in {"driver_ns", "core_ns", "ip_ns", "l4_ns"}:
        told = [known["driver_ns"], *sent]
    elif column == "start_ns":
        cut = f"(e.point = {known['driver_ns']} AND e.start_ns < e.time_ns)"
        listed = ", ".join(map(str, sent))
        return f"CASE WHEN {at} AND (e.point IN ({listed}) OR {cut}) THEN e.start_ns END AS start_ns"
    elif column == "dequeue_ns":
        told = sent
    else:
        told = [known["queue_ns"]]
    return f"CASE WHEN {at} AND e.point IN ({', '.join(map(str, told))}) THEN e.{column} END AS {column}"


def _socket_events(numbers: dict[str, int], wanted: str) -> str:
    """Return the query for stream positions of sockets: write and read calls."""
    listed = ", ".join(str(number(numbers, name)) for name in ("tx.send", "tx.sent", "rx.read"))
    return f"""
        SELECT e.flow, coalesce(c.connection, 0) AS connection, {SLICE} AS slice,
               e.time_ns, e.point, e.tid, e.sock, e.seq, e.len_bytes
        FROM original_sockets e {IN_CONNECTION}
        WHERE e.point IN ({listed}) AND e.protocol = {TCP} AND {wanted}"""


ANCHORED: Final = "flow, connection, slice, seq, time_ns"


def anchors(events: str) -> str:
    """Return the query for the offset of one byte in each slice of each connection; `events` gives :data:`ANCHORED`."""
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
    FROM tcp_packets e JOIN tcp_anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice
    GROUP BY 1, 2, 3, 4"""

fixed(
    "tcp_anchors",
    "a slice of time of a connection, with the offset of one byte in it",
    columns(
        "flow connection slice seq place",
        seq="sequence number of the byte",
        place=("byte", "its offset in the connection"),
    ),
    anchors(f"SELECT {ANCHORED} FROM tcp_packets UNION ALL SELECT {ANCHORED} FROM tcp_socket_events"),
    needs=("tcp_packets", "tcp_socket_events"),
    temporary=True,
)
fixed(
    "tcp_segments",
    "a range of bytes, with the time when it first passed each point",
    columns(
        "flow connection start_byte end_byte neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns core_ns",
        "ip_ns",
        "l4_ns tcp_ns",
    ),
    _SEGMENTS,
    needs=("tcp_packets", "tcp_anchors"),
    temporary=True,
)
