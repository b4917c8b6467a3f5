# SPDX-License-Identifier: Apache-2.0
"""UDP messages: datagrams, followed from the send call to the return of the receive call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.hosts import LINKED, lives_to_link
from hopscope.trace.messages.path import BY_COLUMN, PACKET_COLUMNS
from hopscope.trace.messages.segments import flows_of, number
from hopscope.trace.names import points
from hopscope.trace.packets.continues import ID_STEP
from hopscope.trace.packets.skb_lifetimes import addresses
from hopscope.trace.relation import SELECTION, columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context

UDP: Final = 17
_PEEK: Final = 2
_FLOWS: Final = f"SELECT flow FROM flows WHERE protocol = {UDP}"


def has_udp(context: Context) -> bool:
    """Return whether a flow is of UDP."""
    return bool(context.trace.rows(f"{_FLOWS} LIMIT 1"))


def _is_joined(context: Context) -> bool:
    return bool(hosts(context.trace))


def _is_of_one_host(context: Context) -> bool:
    return not hosts(context.trace)


@relation(
    "udp_lifetimes",
    "the lifetime of a datagram on a host of a joined trace, with the time when it first passed each point",
    columns(
        "packet begins_ns neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns core_ns ip_ns l4_ns copied_ns",
        "dropped_ns tcp_ns freed_tid freed_ns came_cpu flow seq tid len_bytes last_flow last_len host last_seq",
        "last_queue_ns last_start_ns leaves came_flow came_seq came_len",
        begins_ns="when its lifetime began",
        flow="flow at its first device; NULL: no device",
        tid="thread that sent it; NULL: not seen",
        len_bytes="length of the payload; NULL: not seen",
    ),
    needs=("skb_step_lifetimes",),
    temporary=True,
)
def _udp_lifetimes(context: Context) -> str:
    whole = _lifetimes(context.trace, lives_to_link(points(context.trace)))
    return f"SELECT * FROM ({whole}) whole WHERE flow IN ({_FLOWS}) OR came_flow IN ({_FLOWS})"


_SEND: Final = columns(
    "packet first_ns neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns core_ns ip_ns l4_ns copied_ns",
    "dropped_ns tcp_ns freed_tid freed_ns came_cpu flow tid len_bytes sender_host receiver_host state translated",
    packet="the last one, of a datagram in fragments",
    first_ns="when its first fragment came to a device; NULL: it has only one",
    tid="thread that sent it",
    len_bytes="length of the payload",
)


@relation(
    "udp_sends",
    "a datagram that was sent on this host",
    _SEND,
    needs_if={
        "skb_step_lifetimes": _is_of_one_host,
        "udp_lifetimes": _is_joined,
        "host_datagrams_transfers": _is_joined,
        "datagram_routes": _is_joined,
    },
    parameters=(SELECTION,),
    temporary=True,
)
def _udp_sends(context: Context) -> str:
    # A translated flow has its own addresses and ports at both ends.
    wanted = " OR ".join(flows_of(context).flow(context.trace, name) for name in ("flow", "translated"))
    lifetimes = LINKED if _is_joined(context) else _lifetimes(context.trace)
    sent = _SENT.format(lifetimes=lifetimes)
    if context.trace.rows(f"SELECT 1 FROM flows WHERE {_IN_FRAGMENTS} LIMIT 1"):
        sent = _REASSEMBLED.format(sent=sent)
    else:
        sent = f"SELECT *, CAST(NULL AS BIGINT) AS first_ns FROM ({sent}) whole"
    return f"SELECT {', '.join(_SEND)} FROM ({sent}) sends WHERE {wanted}"


def _lifetimes(trace: Trace, more: str = "") -> str:
    among = addresses(trace, f"SELECT DISTINCT skb FROM packets WHERE flow IN ({_FLOWS})")
    return lifetimes_of_datagrams(points(trace), among, more)


@relation(
    "udp_send_calls",
    "a datagram, with the begin and end of its send call",
    columns("packet call_ns sent_ns"),
    needs=("udp_sends",),
    temporary=True,
)
def _udp_send_calls(context: Context) -> str:
    return _calls(points(context.trace))


@relation(
    "udp_notifications",
    "a datagram of which a socket was notified, with its position in the socket's order",
    columns("packet sock ready_ns place", place="position of the datagram among those of the socket"),
    needs=("udp_sends",),
    temporary=True,
)
def _udp_notifications(context: Context) -> str:
    return _notified(points(context.trace))


@relation(
    "udp_receives",
    "a call that received a datagram, with the datagram's position in the socket's order",
    columns(
        "sock tid time_ns len_bytes place",
        len_bytes="received",
        place="position of the datagram among those of the socket",
    ),
    temporary=True,
)
def _udp_receives(context: Context) -> str:
    return _received(points(context.trace))


# Selecting rows before the window functions is faster.
@relation(
    "udp_reader_events",
    "the return of a call that received a datagram, or a wake-up or context switch of its thread",
    columns("tid time_ns point", point="point of the wake-up or switch; 0: return of the call"),
    needs=("udp_receives",),
    temporary=True,
)
def _udp_reader_events(context: Context) -> str:
    return _around(points(context.trace))


@relation(
    "udp_wakeups",
    "the return of a call that received a datagram, with the wake-up of its thread",
    columns("tid time_ns point wake_ns switch_ns", point="0: return of the call"),
    needs=("udp_reader_events",),
    temporary=True,
)
def _udp_wakeups(context: Context) -> str:
    return _before_returns(points(context.trace))


_ONE_HOST: Final = (
    "CAST(NULL AS SMALLINT) AS sender_host, CAST(NULL AS SMALLINT) AS receiver_host, CAST(NULL AS STRING) AS state"
)


def lifetimes_of_datagrams(numbers: dict[str, int], among: str, more: str = "") -> str:
    """Return the query for packet lifetimes: times at their points, and their state at the first and last device.

    ``last_flow`` is the flow at the last device: with an unchanged payload, it was translated; encapsulation in a
    tunnel makes it longer.
    """
    known = {column: number(numbers, BY_COLUMN[column].point) for column in PACKET_COLUMNS if column != "tcp_ns"}
    known |= {"copied_ns": number(numbers, "rx.copy"), "dropped_ns": number(numbers, "skb.drop")}
    freed = number(numbers, "skb.free")
    listed = ", ".join(map(str, (*known.values(), freed)))
    times = ", ".join(f"min(CASE WHEN point = {each} THEN time_ns END) AS {name}" for name, each in known.items())
    at = {
        name: f"CASE WHEN point = {known[f'{name}_ns']} THEN time_ns END"
        for name in ("neighbour", "queue", "l4", "core")
    }
    payload = "len_bytes - header_bytes"
    return f"""
        SELECT packet, min(time_ns) AS begins_ns, {times}, CAST(NULL AS BIGINT) AS tcp_ns,
               max(CASE WHEN point = {freed} THEN tid END) AS freed_tid,
               max(CASE WHEN point = {freed} THEN time_ns END) AS freed_ns,
               coalesce(min_by(cpu, {at["l4"]}), min_by(cpu, {at["core"]})) AS came_cpu,
               min_by(flow, {at["queue"]}) AS flow, min_by(seq, {at["queue"]}) AS seq,
               coalesce(min_by(tid, {at["neighbour"]}), min_by(tid, {at["queue"]})) AS tid,
               min_by({payload}, {at["queue"]}) AS len_bytes,
               max_by(flow, {at["queue"]}) AS last_flow, max_by({payload}, {at["queue"]}) AS last_len,
               {more or _ONE_HOST}
        FROM skb_step_lifetimes WHERE point IN ({listed}) AND {among} GROUP BY packet"""


# Packets whose lifetime begins with a send call.
_SENT: Final = f"""
    SELECT *, CASE WHEN last_flow <> flow AND last_len = len_bytes THEN last_flow END AS translated
    FROM ({{lifetimes}}) whole
    WHERE coalesce(neighbour_ns, queue_ns) = begins_ns AND flow IN (SELECT flow FROM flows WHERE protocol = {UDP})"""

# A later fragment has no ports. What it is a fragment of has its addresses and IP identification, and came before it.
_IN_FRAGMENTS: Final = f"protocol = {UDP} AND source_port = 0 AND destination_port = 0"
_OF_FIRST: Final = ("flow", "tid", "translated", "sender_host")
# IP hands on what has come of a datagram as the fragment that came last.
_AT_SENDER: Final = ("packet", "neighbour_ns", "queue_ns", "enqueue_ns", "dequeue_ns", "start_ns")
_OF_WHOLE: Final = tuple(
    name for name in _SEND if name not in {*_OF_FIRST, *_AT_SENDER, "first_ns", "len_bytes", "dropped_ns"}
)
_REASSEMBLED: Final = f"""
    SELECT {", ".join(f"min_by({name}, queue_ns) AS {name}" for name in _OF_FIRST)},
           {", ".join(f"max_by({name}, queue_ns) AS {name}" for name in _AT_SENDER)},
           {", ".join(f"max_by({name}, coalesce(l4_ns, driver_ns, queue_ns)) AS {name}" for name in _OF_WHOLE)},
           CASE WHEN count(*) > 1 THEN min(queue_ns) END AS first_ns, CAST(sum(len_bytes) AS BIGINT) AS len_bytes,
           min(dropped_ns) AS dropped_ns
    FROM (SELECT *, sum(CASE WHEN later THEN 0 ELSE 1 END) OVER (PARTITION BY source, destination, id, from_host
                                                                ORDER BY queue_ns ROWS UNBOUNDED PRECEDING) AS datagram
          FROM (SELECT s.*, f.source, f.destination, s.seq % {ID_STEP} AS id, coalesce(s.sender_host, 0) AS from_host,
                       {_IN_FRAGMENTS} AS later
                FROM ({{sent}}) s JOIN flows f ON f.flow = s.flow) named) counted
    WHERE datagram > 0
    GROUP BY source, destination, id, from_host, datagram"""


def _calls(numbers: dict[str, int]) -> str:
    """Return the query for begin and end of the send call: the events next to tx.queue in its thread."""
    enter, sent = number(numbers, "call.enter"), number(numbers, "tx.sent")
    thread = "OVER (PARTITION BY tid ORDER BY time_ns)"
    return f"""
        SELECT packet, CASE WHEN before_point = {enter} THEN before_ns END AS call_ns,
               CASE WHEN next_point = {sent} THEN next_ns END AS sent_ns
        FROM (SELECT packet, lag(point) {thread} AS before_point, lag(time_ns) {thread} AS before_ns,
                     lead(point) {thread} AS next_point, lead(time_ns) {thread} AS next_ns
              FROM (SELECT packet, tid, coalesce(neighbour_ns, queue_ns) AS time_ns, 0 AS point FROM udp_sends
                    UNION ALL SELECT NULL, tid, time_ns, point FROM sockets WHERE point IN ({enter}, {sent})) calls
             ) found WHERE packet IS NOT NULL"""


def _notified(numbers: dict[str, int]) -> str:
    """Return the query for the socket notified of a datagram, with its position in the socket's order.

    The reader is notified directly after the datagram is queued, on the same CPU, before the CPU handles the next
    packet.
    """
    ready = number(numbers, "rx.ready")
    cpu = "OVER (PARTITION BY cpu ORDER BY time_ns)"
    return f"""
        SELECT packet, sock, time_ns AS ready_ns, row_number() OVER (PARTITION BY sock ORDER BY time_ns) AS place
        FROM (SELECT point, sock, time_ns, lag(packet) {cpu} AS packet
              FROM (SELECT came_cpu AS cpu, coalesce(l4_ns, core_ns) AS time_ns, 0 AS point, packet, 0 AS sock
                    FROM udp_sends WHERE came_cpu IS NOT NULL
                    UNION ALL SELECT cpu, time_ns, point, NULL, sock FROM sockets
                              WHERE point = {ready} AND protocol = {UDP}) events) found
        WHERE point = {ready}"""


def _received(numbers: dict[str, int]) -> str:
    """Return the query for the position, in the order of its socket, of the datagram that a receive call returned.

    A queue delivers datagrams in order. If more were received than notified, the surplus was queued before the
    recording began, or its events are missing: positions are counted from there.
    """
    ready, received = number(numbers, "rx.ready"), number(numbers, "rx.received")
    more = last_known("CASE WHEN surplus > 0 AND hit = 1 THEN surplus END")
    # With each call, the surplus increases by at most one: the maximum so far is the latest new value.
    return f"""
        SELECT sock, tid, time_ns, len_bytes,
               nth - coalesce({more} OVER (PARTITION BY sock ORDER BY time_ns ROWS UNBOUNDED PRECEDING), 0) AS place
        FROM (SELECT *, row_number() OVER (PARTITION BY sock, surplus ORDER BY time_ns) AS hit
              FROM (SELECT sock, tid, time_ns, len_bytes, nth, nth - notified AS surplus
                    FROM (SELECT sock, tid, time_ns, len_bytes, point, nth, every - nth AS notified
                          FROM (SELECT *, row_number() OVER (PARTITION BY sock, point ORDER BY time_ns) AS nth,
                                       row_number() OVER (PARTITION BY sock ORDER BY time_ns) AS every
                                FROM sockets WHERE protocol = {UDP} AND (point = {ready} OR (
                                     point = {received} AND len_bytes >= 0 AND value % {2 * _PEEK} < {_PEEK}))) counted
                         ) numbered
                    WHERE point = {received}) compared) ranked"""


def _around(numbers: dict[str, int]) -> str:
    """Return the query for returns of receive calls, and for wake-ups and context switches of their threads."""
    wake, switch = number(numbers, "sched.wake"), number(numbers, "sched.switch")
    return f"""
        SELECT tid, time_ns, 0 AS point FROM udp_receives
        UNION ALL SELECT CAST(subject AS INTEGER), time_ns, point FROM cpu
                  WHERE point IN ({wake}, {switch}) AND subject IN (SELECT DISTINCT tid FROM udp_receives)"""


def _before_returns(numbers: dict[str, int]) -> str:
    """Return the query for the last wake-up of the reader, and its last switch to a CPU, before a call returned."""
    last = ", ".join(
        f"{last_known(f'CASE WHEN point = {number(numbers, point)} THEN time_ns END')} OVER"
        f" (PARTITION BY tid ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS {name}"
        for name, point in (("wake_ns", "sched.wake"), ("switch_ns", "sched.switch"))
    )
    return f"SELECT * FROM (SELECT *, {last} FROM udp_reader_events) found WHERE point = 0"


# A call receives at most the length of the datagram: if it received more, the order is uncertain.
_MESSAGES: Final = f"""
    SELECT d.flow, d.translated, 0 AS connection, CAST(NULL AS BIGINT) AS start_byte, CAST(NULL AS BIGINT) AS end_byte,
           d.len_bytes, d.tid AS sender_tid, c.call_ns, CAST(NULL AS BIGINT) AS send_ns, c.sent_ns,
           d.first_ns, {", ".join(f"d.{name}" for name in PACKET_COLUMNS)},
           CAST(NULL AS BIGINT) AS order_ns, t.ready_ns, r.tid AS reader_tid, a.wake_ns, a.switch_ns,
           d.copied_ns AS copy_ns,
           CASE WHEN d.freed_tid = r.tid AND d.freed_ns < r.time_ns THEN d.freed_ns END AS read_ns,
           r.time_ns AS received_ns, 0 AS retransmits, CAST(NULL AS BIGINT) AS resent_ns, d.dropped_ns,
           d.sender_host, d.receiver_host, d.state
    FROM udp_sends d
    LEFT JOIN udp_send_calls c ON c.packet = d.packet
    LEFT JOIN udp_notifications t ON t.packet = d.packet
    LEFT JOIN udp_receives r ON r.sock = t.sock AND r.place = t.place AND r.len_bytes <= d.len_bytes
    LEFT JOIN udp_wakeups a ON a.tid = r.tid AND a.time_ns = r.time_ns"""
fixed(
    "udp_messages",
    "a datagram that was sent on this host, with the time when it first passed each point; order not yet checked",
    columns(
        "flow translated connection start_byte end_byte len_bytes sender_tid call_ns send_ns sent_ns first_ns",
        "neighbour_ns queue_ns enqueue_ns dequeue_ns start_ns driver_ns core_ns ip_ns l4_ns tcp_ns order_ns ready_ns",
        "reader_tid",
        "wake_ns switch_ns copy_ns read_ns received_ns retransmits resent_ns dropped_ns sender_host receiver_host",
        "state",
        len_bytes="length of the payload",
    ),
    _MESSAGES,
    needs=("udp_sends", "udp_send_calls", "udp_notifications", "udp_receives", "udp_wakeups"),
    temporary=True,
)
