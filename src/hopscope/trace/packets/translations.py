# SPDX-License-Identifier: Apache-2.0
"""Flows of one stream with several addresses, due to NAT on this host.

The sending and the receiving socket have different flows. A translated packet keeps its skb, its sequence number and
its payload; its data may be moved to another buffer if TCP's original still holds it. Two consecutive header-parsing
points at the address of an skb therefore indicate a translation if both see TCP with the same sequence number and
length, but different flows. The outer packet of a tunnel has a different number.

If the sender's own host translates at ``output``, no packet has the flow of the socket. It is known from the call: a
packet that reaches a device in a thread, with a sequence number in the range that the thread's last call may write,
belongs to that call.

Datagrams have no such number, and do not need one: :mod:`hopscope.trace.messages.udp` follows their packets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.store.schema import BY_NAME
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context
    from hopscope.trace.selection import Selection

_TCP: Final = 6
_SYN: Final = 2
_WRAP: Final = 1 << 32
_NEVER_NS: Final = (1 << 63) - 1
_LOOKS_AT_HEADERS: Final = ("tx.queue", "rx.driver", "rx.tcp_queue", "skb.drop")
# More translations of one packet indicate a loop.
_MOST_IN_A_ROW: Final = 8

_IS_SYN: Final = f"(tcp_flags % {2 * _SYN} >= {_SYN})"
# Sampling interval.
_FEW: Final = 64
_NOT_CALLED: Final = "SELECT 0 AS time_ns, 0 AS skb, 0 AS original WHERE FALSE"
_NOTHING: Final = "SELECT 0 AS flow, 0 AS original, 0 AS since_ns, 0 AS from_ns, 0 AS until_ns WHERE FALSE"


@relation("sent_tcp_flows", "a TCP flow sent by a socket of this host", columns("flow"), temporary=True)
def _sent_tcp_flows(context: Context) -> str:
    return _senders(_numbers(context.trace))


@relation(
    "flow_translations",
    "a period in which a TCP flow was the translation of another one, sent by a socket",
    columns(
        "flow original since_ns from_ns until_ns",
        flow="translated flow",
        from_ns="beginning of the translation; 0: always",
        until_ns="end; 2^63 - 1: end of the recording",
    ),
    needs=("sent_tcp_flows",),
    scratch=("translated_calls", "resolving_translations"),
)
def _flow_translations(context: Context) -> str:
    trace, numbers = context.trace, _numbers(context.trace)
    called = _may_have_called(trace, numbers)
    if not called and not _may_have(trace, numbers):
        return _NOTHING
    trace.make_table("translated_calls", _called(numbers) if called else _NOT_CALLED)
    trace.make_table("resolving_translations", _translations(numbers))
    _resolve(trace)
    return "SELECT * FROM resolving_translations WHERE original IN (SELECT flow FROM sent_tcp_flows)"


@relation(
    "original_packets",
    "an event of `packets`, with the original flow",
    columns("time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns"),
    kind="view",
    needs=("flow_translations",),
)
def _original_packets(context: Context) -> str:
    return _original("packets", translated=has_translations(context.trace))


@relation(
    "original_sockets",
    "an event of `sockets`, with the original flow",
    columns("time_ns cpu point tid sock flow seq len_bytes value protocol netns"),
    kind="view",
    needs=("flow_translations",),
)
def _original_sockets(context: Context) -> str:
    return _original("sockets", translated=has_translations(context.trace))


@relation(
    "original_payloads",
    "the beginning of what a packet carries, with the original flow",
    columns(
        "time_ns point flow seq len_bytes data ifindex netns",
        seq="TCP: sequence number of the first of these bytes; UDP: as in `packets`",
        len_bytes="length of all that the packet carries",
        data="its first bytes, two hexadecimal digits each",
    ),
    kind="view",
    needs=("flow_translations",),
)
def _original_payloads(context: Context) -> str:
    return _original("payloads", translated=has_translations(context.trace))


def has_translations(trace: Trace) -> bool:
    """Return whether there is a row in ``flow_translations``."""
    return bool(trace.rows("SELECT 1 FROM flow_translations LIMIT 1"))


def wanted_flow(trace: Trace, selection: Selection, column: str) -> str:
    """Return the condition that an original flow is selected, itself or through a translation of it."""
    own = selection.flow(trace, column)
    if not has_translations(trace):
        return own
    return f"({own} OR {column} IN (SELECT original FROM flow_translations WHERE {selection.flow(trace, 'flow')}))"


def final_translations(query: str) -> str:
    """Return the query for the last translations of a query for `flow`, `original`, `since_ns` (when seen first).

    Of consecutive translations, the last one is the receiver's.
    """
    own = "OVER (PARTITION BY original ORDER BY since_ns)"
    return (
        f"SELECT flow, original, CASE WHEN lag(flow) {own} IS NULL THEN 0 ELSE since_ns END AS from_ns,"
        f" coalesce(lead(since_ns) {own}, {_NEVER_NS}) AS until_ns FROM ({query}) q"
    )


def _numbers(trace: Trace) -> dict[str, int]:
    return {name: number for name, number in points(trace).items() if name in _NEEDED}


_NEEDED: Final = (*_LOOKS_AT_HEADERS, "tx.send", "tx.sent", "rx.ready", "rx.read")


def _listed(numbers: dict[str, int], *names: str) -> str:
    return ", ".join(str(numbers.get(name, -1)) for name in names)


def _senders(numbers: dict[str, int]) -> str:
    """Return the query for the flows that sockets of this host sent."""
    return (
        f"SELECT DISTINCT flow FROM sockets WHERE protocol = {_TCP} AND flow <> 0"
        f" AND point IN ({_listed(numbers, 'tx.send', 'tx.sent')})"
    )


def _may_have(trace: Trace, numbers: dict[str, int]) -> bool:
    """Return whether a flow sent on this host is received by a device, but not by a socket.

    Most traces have none, and checking flows avoids checking the path of each packet. A flow that is translated for
    only a part of the recording is not detected unless there is another one.
    """
    read = f"SELECT flow FROM sockets WHERE point IN ({_listed(numbers, 'rx.ready', 'rx.read')})"
    unread = f"SELECT flow FROM sent_tcp_flows EXCEPT {read}"
    arrived = f"SELECT DISTINCT flow FROM packets WHERE point = {_listed(numbers, 'rx.driver')}"
    return bool(trace.rows(unread + " LIMIT 1")) and bool(
        trace.rows(f"SELECT 1 FROM ({arrived}) a WHERE flow IN ({unread}) LIMIT 1")
    )


def _may_have_called(trace: Trace, numbers: dict[str, int]) -> bool:
    """Return whether a socket sent a flow without packets, and there are packets of a flow that no socket sent."""
    return all(trace.rows(f"{query} LIMIT 1") for query in (_unqueued(numbers), _unsent(numbers)))


def _unqueued(numbers: dict[str, int]) -> str:
    return f"SELECT flow FROM sent_tcp_flows EXCEPT {_queued(numbers)}"


def _unsent(numbers: dict[str, int]) -> str:
    return f"{_queued(numbers)} AND tcp_flags <> 0 AND flow NOT IN (SELECT flow FROM sent_tcp_flows)"


def _queued(numbers: dict[str, int]) -> str:
    return f"SELECT DISTINCT flow FROM packets WHERE point = {_listed(numbers, 'tx.queue')}"


def _called(numbers: dict[str, int]) -> str:
    """Return the query for packets that were sent by calls on other flows.

    Packets sent by a softirq within a thread rarely match by chance; those of the call itself usually do.
    """
    send, queue = (_listed(numbers, name) for name in ("tx.send", "tx.queue"))
    last = ", ".join(
        f"{last_known(f'CASE WHEN point = {send} THEN {name} END')} OVER"
        f" (PARTITION BY netns, tid ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS {as_name}"
        for name, as_name in (("flow", "original"), ("seq", "from_seq"), ("len_bytes", "asked"))
    )
    return f"""
        SELECT time_ns, skb, original
        FROM (SELECT *, sum(fits) OVER (PARTITION BY flow, original) AS fitting,
                     count(*) OVER (PARTITION BY flow, original) AS seen
              FROM (SELECT *, CASE WHEN (seq - from_seq + {_WRAP}) % {_WRAP} < asked THEN 1 ELSE 0 END AS fits
                    FROM (SELECT time_ns, skb, point, flow, seq, {last}
                          FROM (SELECT time_ns, netns, tid, point, 0 AS skb, flow, seq, len_bytes FROM sockets
                                WHERE point = {send} AND protocol = {_TCP}
                                UNION ALL
                                SELECT time_ns, netns, tid, point, skb, flow, seq, len_bytes FROM packets
                                WHERE point = {queue} AND len_bytes > header_bytes AND flow IN ({_unsent(numbers)})
                               ) events) latest
                    WHERE point = {queue} AND original IN ({_unqueued(numbers)})) own) counted
        WHERE fits = 1 AND {_FEW} * fitting >= seen"""


def _translations(numbers: dict[str, int]) -> str:
    """Return the query for the flow of which each flow is the translation, one step back.

    A connection may reuse the ports of an earlier one whose translation has ended: the flow is then a translation of
    another flow, or of none if a socket of this host sends it directly. A SYN belongs to the call whose data follows.
    Packets before the first observed translation are assumed to be translated, too, unless that one began the
    connection. Pure acknowledgements are excluded, because resets often have the number 0.
    """
    skb, flow = "OVER (PARTITION BY skb ORDER BY time_ns)", "OVER (PARTITION BY flow ORDER BY time_ns)"
    same = " AND ".join(f"lag({name}) {skb} = {name}" for name in ("seq", "payload", "tcp_flags"))
    own = f"original IS NULL AND {_IS_SYN} AND point = {_listed(numbers, 'tx.queue')}"
    return f"""
        WITH looked_at AS (
            SELECT e.skb, e.time_ns, point, flow, seq, tcp_flags, len_bytes - header_bytes AS payload,
                   c.original AS caller
            FROM packets e LEFT JOIN translated_calls c ON c.time_ns = e.time_ns AND c.skb = e.skb
            WHERE point IN ({_listed(numbers, *_LOOKS_AT_HEADERS)}) AND flow <> 0 AND tcp_flags <> 0
                  AND (len_bytes > header_bytes OR {_IS_SYN})),
        steps_back AS (
            SELECT time_ns, point, flow, tcp_flags, caller,
                   coalesce(caller, CASE WHEN {same} THEN lag(flow) {skb} END) AS original FROM looked_at),
        translated AS (SELECT DISTINCT flow FROM steps_back WHERE original <> flow),
        known AS (
            SELECT time_ns, flow, tcp_flags, coalesce(original, lead(caller) {flow}, flow) AS original FROM steps_back
            WHERE (original <> flow OR ({own})) AND flow IN (SELECT flow FROM translated)),
        changes AS (
            SELECT * FROM (SELECT *, lag(original) {flow} AS before FROM known) k
            WHERE before IS NULL OR before <> original OR {_IS_SYN})
        SELECT flow, original, since_ns, until_ns,
               CASE WHEN before IS NULL AND NOT {_IS_SYN} THEN 0 ELSE since_ns END AS from_ns
        FROM (SELECT flow, original, tcp_flags, before, time_ns AS since_ns,
                     coalesce(lead(time_ns) {flow}, {_NEVER_NS}) AS until_ns FROM changes) spans
        WHERE original <> flow"""


def _resolve(trace: Trace) -> None:
    """Follow repeated translations back to the original flow."""
    earlier = "e.flow = t.original AND t.since_ns >= e.from_ns AND t.since_ns < e.until_ns AND e.original <> t.flow"
    for _ in range(_MOST_IN_A_ROW):
        if not trace.rows(f"SELECT 1 FROM resolving_translations t JOIN resolving_translations e ON {earlier} LIMIT 1"):
            break
        trace.make_table(
            "resolving_translations",
            "SELECT t.flow, coalesce(e.original, t.original) AS original, t.since_ns, t.from_ns, t.until_ns"
            f" FROM resolving_translations t LEFT JOIN resolving_translations e ON {earlier}",
        )


def _original(name: str, *, translated: bool) -> str:
    """Return the query for a table with original flows."""
    if not translated:
        return f"SELECT * FROM {name}"
    columns = ", ".join(
        "coalesce(t.original, e.flow) AS flow" if column.name == "flow" else f"e.{column.name}"
        for column in BY_NAME[name].columns
    )
    return (
        f"SELECT {columns} FROM {name} e LEFT JOIN flow_translations t"
        " ON t.flow = e.flow AND e.time_ns >= t.from_ns AND e.time_ns < t.until_ns"
    )
