# SPDX-License-Identifier: Apache-2.0
"""The report ``messages --packets``: every segment, retransmission and fragment that carried bytes of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.report import Column, of_rows
from hopscope.term.format import plural
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.host_numbers import host_of_cpu, hosts
from hopscope.trace.messages.path import BY_COLUMN, PACKET_COLUMNS, SENT
from hopscope.trace.messages.segments import TCP, number, place
from hopscope.trace.messages.udp import UDP
from hopscope.trace.names import UNNAMED, points
from hopscope.trace.packets.continues import ID_STEP
from hopscope.trace.packets.skb_lifetimes import addresses
from hopscope.trace.relation import build, columns, fixed, relation
from hopscope.verbs.report.messages import REASONS, step_name

if TYPE_CHECKING:
    from hopscope.model.report import Report
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

_REPORT: Final = "messages"
# The parameter: numbers of messages, and how many of them.
_CHOSEN: Final = "chosen_messages"
_SEGMENT: Final = f"CASE WHEN m.protocol = {TCP} THEN"
_STEPS: Final = tuple(BY_COLUMN[column] for column in PACKET_COLUMNS)

COLUMNS: Final = (
    Column("message", "number", "number of the message in this selection of this recording", "message"),
    Column("begin_ns", "at_ns", "time of the message's first observed point", "begin"),
    Column("total_ns", "ns", "time from the message's first to its last observed point", "total"),
    Column("message_bytes", "bytes", "length of the message", "of"),
    Column("protocol", "text", "tcp or udp", "proto"),
    Column("flow_name", "text", "source > destination, as the sender sees it", "flow"),
    Column("packet", "number", "number of the packet in the trace", "packet"),
    Column("host", "text", "host on which it was seen; null in a recording of one host", "host"),
    Column("kind", "text", "segment, retransmission, datagram or fragment", "kind"),
    Column("start_byte", "number", "first byte of the message that it carries, from 0; null: a fragment", "from"),
    Column("len_bytes", "bytes", "bytes of the message that it carries", "bytes"),
    *(
        Column(
            step_name(step.column),
            "ns",
            f"time after the message's beginning when it first passed {step.point}",
            step.title,
        )
        for step in _STEPS
    ),
    Column("dropped_ns", "ns", "time after the message's beginning when it was dropped", "dropped"),
    Column("reason", "text", "why it was dropped", "reason"),
)


@relation(
    "chosen_messages",
    "a message whose packets are wanted",
    columns(
        "message protocol flow connection start_byte end_byte len_bytes sender_tid sender_host receiver_host first_ns",
        "neighbour_ns queue_ns network_bound_ns begins_ns ends_ns total_ns",
        len_bytes="length of the message",
    ),
    needs=("messages",),
    parameters=(_CHOSEN,),
    temporary=True,
    report=_REPORT,
)
def _chosen_messages(context: Context) -> str:
    numbers, limit = context[_CHOSEN] or ((), None)
    wanted = f"message IN ({', '.join(map(str, numbers))})" if numbers else "total_ns > 0"
    return (
        "SELECT message, protocol, flow, connection, start_byte, end_byte, len_bytes, sender_tid, sender_host,"
        " receiver_host, first_ns, neighbour_ns, queue_ns, network_bound_ns, begins_ns, ends_ns, total_ns"
        f" FROM messages WHERE {wanted} ORDER BY total_ns DESC, begins_ns, flow"
        f"{'' if limit is None else f' LIMIT {limit}'}"
    )


@relation(
    "chosen_payloads",
    "an event of a packet that carries bytes of a chosen message",
    columns(
        "message skb time_ns start_byte end_byte",
        start_byte="first byte of the message that it carries; NULL: UDP",
        end_byte="end of these bytes",
    ),
    needs=("chosen_messages", "tcp_packets", "tcp_anchors"),
    temporary=True,
    report=_REPORT,
)
def _chosen_payloads(context: Context) -> str:
    return f"{_OF_SEGMENTS} UNION ALL {_of_datagrams(context.trace)}"


_OF_SEGMENTS: Final = f"""
    SELECT m.message, p.skb, p.time_ns, greatest(p.start_byte, m.start_byte) - m.start_byte AS start_byte,
           least(p.end_byte, m.end_byte) - m.start_byte AS end_byte
    FROM chosen_messages m JOIN (
        SELECT e.flow, e.connection, e.skb, e.time_ns, {place("e.seq")} AS start_byte,
               {place("e.seq")} + e.payload AS end_byte
        FROM tcp_packets e JOIN tcp_anchors a ON a.flow = e.flow AND a.connection = e.connection AND a.slice = e.slice
    ) p ON p.flow = m.flow AND p.connection = m.connection AND p.start_byte < m.end_byte AND p.end_byte > m.start_byte
    WHERE m.protocol = {TCP}"""


def _of_datagrams(trace: Trace) -> str:
    """Return the query for a datagram's fragments: its send call hands them over, and they have one identification.

    On another host, they have the same identification and addresses, while the datagram is under way.
    """
    numbers = points(trace)
    sent = f"""
        SELECT m.message, p.skb, p.time_ns, pf.flow, p.seq % {ID_STEP} AS id, m.receiver_host,
               m.begins_ns - coalesce(m.network_bound_ns, 0) AS from_ns,
               m.ends_ns + coalesce(m.network_bound_ns, 0) AS until_ns
        FROM chosen_messages m JOIN flows f ON f.flow = m.flow
        JOIN flows pf ON pf.source = f.source AND pf.destination = f.destination AND pf.protocol = {UDP}
             AND (pf.flow = f.flow OR (pf.source_port = 0 AND pf.destination_port = 0))
        JOIN packets p ON p.flow = pf.flow AND p.point = {number(numbers, "tx.queue")}
             AND p.time_ns BETWEEN coalesce(m.first_ns, m.queue_ns) AND m.queue_ns
             AND (p.tid = m.sender_tid OR m.neighbour_ns IS NOT NULL)
        WHERE m.protocol = {UDP}"""
    found = f"SELECT message, skb, time_ns, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM ({sent}) sent"
    if hosts(trace):
        found += f"""
            UNION ALL SELECT s.message, p.skb, p.time_ns, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)
            FROM ({sent}) s JOIN packets p ON p.flow = s.flow AND p.seq % {ID_STEP} = s.id
                 AND p.point IN ({number(numbers, "rx.driver")}, {number(numbers, "rx.core")})
                 AND {host_of_cpu("p.cpu")} = s.receiver_host AND p.time_ns BETWEEN s.from_ns AND s.until_ns"""
    return found


@relation(
    "chosen_packets",
    "a packet that carries bytes of a chosen message",
    columns(
        "message packet host start_byte end_byte seen_ns len_bytes dropped_ns",
        *PACKET_COLUMNS,
        start_byte="first byte of the message that it carries; NULL: UDP",
        end_byte="end of these bytes",
        seen_ns="when it was first seen",
        len_bytes="length of the payload; NULL: not seen",
        dropped_ns="when it was dropped; NULL: it was not",
        **{column: f"when it first passed {BY_COLUMN[column].point}" for column in PACKET_COLUMNS},
    ),
    needs=("chosen_payloads", "skb_step_lifetimes"),
    temporary=True,
    report=_REPORT,
)
def _chosen_packets(context: Context) -> str:
    numbers = points(context.trace)
    among = addresses(context.trace, "SELECT DISTINCT skb FROM chosen_payloads")
    lives = f"(SELECT * FROM skb_step_lifetimes WHERE {among}) l"

    def at(point: str) -> str:
        return f"CASE WHEN l.point = {number(numbers, point)} THEN l.time_ns END"

    times = ", ".join(f"min({at(step.point)}) AS {step.column}" for step in _STEPS)
    # Where headers are parsed, the length of what is behind them is known. What was reassembled later has more.
    parsed = "CASE WHEN l.header_bytes > 0 THEN l.time_ns END"
    return f"""
        SELECT v.message, v.packet, {host_of_cpu("min(l.cpu)")} AS host, v.start_byte, v.end_byte,
               min(l.time_ns) AS seen_ns, min_by(l.len_bytes - l.header_bytes, {parsed}) AS len_bytes,
               min({at("skb.drop")}) AS dropped_ns, {times}
        FROM (SELECT y.message, l.packet, min(y.start_byte) AS start_byte, max(y.end_byte) AS end_byte
              FROM chosen_payloads y JOIN {lives} ON l.skb = y.skb AND l.time_ns = y.time_ns
              GROUP BY y.message, l.packet) v
        JOIN {lives} ON l.packet = v.packet
        GROUP BY v.message, v.packet, v.start_byte, v.end_byte"""


# The kernel tells of a retransmission when it has handed the packet over.
fixed(
    "chosen_retransmissions",
    "a packet with which TCP retransmitted bytes of a chosen message",
    columns("message packet"),
    f"""
    SELECT DISTINCT message, packet FROM (
        SELECT m.message, r.time_ns, max_by(p.packet, p.queue_ns) AS packet
        FROM chosen_messages m
        JOIN retransmissions r ON r.flow = m.flow AND r.connection = m.connection AND r.start_byte < m.end_byte
             AND r.end_byte > m.start_byte
        JOIN chosen_packets p ON p.message = m.message AND p.queue_ns <= r.time_ns
             AND p.start_byte + m.start_byte < r.end_byte AND p.end_byte + m.start_byte > r.start_byte
             AND p.host = coalesce(m.sender_host, p.host)
        WHERE m.protocol = {TCP} GROUP BY m.message, r.time_ns) last_ones""",
    needs=("chosen_messages", "chosen_packets", "retransmissions"),
    temporary=True,
    report=_REPORT,
)


def _after(column: str) -> str:
    """Return SQL for the time of a point after the message's beginning, NULL if it is one of the other end."""
    end, other = ("receiver", "sender") if column in SENT else ("sender", "receiver")
    elsewhere = f"p.host = m.{end}_host AND m.{other}_host <> m.{end}_host"
    return f"CASE WHEN coalesce({elsewhere}, FALSE) THEN NULL ELSE p.{column} - m.begins_ns END"


_QUERY: Final = f"""
    SELECT m.message, m.begins_ns - {{started_ns}}, m.total_ns, m.len_bytes,
           CASE WHEN m.protocol = {TCP} THEN 'tcp' ELSE 'udp' END, coalesce(n.name, {UNNAMED.format("m.flow")}),
           p.packet, h.name,
           {_SEGMENT} CASE WHEN r.packet IS NOT NULL THEN 'retransmission' ELSE 'segment' END
           WHEN count(*) OVER (PARTITION BY m.message, p.host) > 1 THEN 'fragment' ELSE 'datagram' END,
           CASE WHEN m.protocol = {TCP} THEN p.start_byte
                WHEN count(*) OVER (PARTITION BY m.message, p.host) = 1 THEN 0 END,
           {_SEGMENT} p.end_byte - p.start_byte ELSE p.len_bytes END,
           {", ".join(map(_after, PACKET_COLUMNS))},
           p.dropped_ns - m.begins_ns, CASE WHEN p.dropped_ns IS NOT NULL THEN d.reason END
    FROM chosen_messages m JOIN chosen_packets p ON p.message = m.message
    LEFT JOIN chosen_retransmissions r ON r.message = p.message AND r.packet = p.packet
    LEFT JOIN flow_names n ON n.flow = m.flow LEFT JOIN hosts h ON h.host = p.host
    LEFT JOIN ({REASONS}) d ON d.time_ns = p.dropped_ns
    ORDER BY m.total_ns DESC, m.begins_ns, m.flow, m.message, p.seen_ns, p.packet"""


def message_packets(
    trace: Trace, selection: Selection, *, numbers: tuple[int, ...] = (), limit: int | None = None
) -> Report:
    """Return a row per packet that carried bytes of a message, the slowest message first, its packets in order of time.

    Parameters
    ----------
    numbers
        Of the messages; none: all.
    limit
        Maximum messages.

    Raises
    ------
    UsageError
        There is no message of such a number.
    """
    build(trace, "messages", "flow_names", selection=selection)
    _require(trace, numbers)
    follow_packets(trace, selection, numbers=numbers, limit=limit)
    rows = trace.rows(_QUERY.format(started_ns=trace.metadata.started_ns))
    ((without,),) = trace.rows(
        "SELECT count(*) FROM chosen_messages WHERE message NOT IN (SELECT message FROM chosen_packets)"
    )
    ((known, shown),) = trace.rows(
        "SELECT (SELECT count(*) FROM messages WHERE total_ns > 0), (SELECT count(*) FROM chosen_messages)"
    )
    return of_rows(
        "messages.packets",
        COLUMNS,
        rows,
        notes=[*_notes(without), *loss_notes(trace), *unattached_notes(trace, ("tx.queue", "tcp.retransmit"))],
        left_out=0 if numbers else known - shown,
    )


def follow_packets(
    trace: Trace, selection: Selection, *, numbers: tuple[int, ...] = (), limit: int | None = None
) -> None:
    """Make the relations ``chosen_messages``, ``chosen_packets`` and ``chosen_retransmissions``."""
    chosen = {_CHOSEN: (numbers, limit)}
    build(trace, "chosen_messages", "chosen_packets", "chosen_retransmissions", selection=selection, **chosen)


def _require(trace: Trace, numbers: tuple[int, ...]) -> None:
    for each in numbers:
        if not trace.rows(f"SELECT 1 FROM messages WHERE message = {each}"):
            ((count,),) = trace.rows("SELECT count(*) FROM messages")
            raise UsageError(
                f"There is no message {each} among the {plural(count, 'message')} of this selection",
                "`hopscope report messages --packets` shows their numbers, with the same options",
            )


def _notes(without: int) -> list[str]:
    return [f"{plural(without, 'message')} without an observed packet"] if without else []
