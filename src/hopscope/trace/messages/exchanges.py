# SPDX-License-Identifier: Apache-2.0
"""The turns of the two ends of a connection, and the matching of requests with answers.

Each end records its own sends and reads, in the order of its own clock. The data that it sends between two reads is a
turn. A request is a turn of the client, and the answer is the following turn of the server. Each recorded end gives a
list of exchanges: bytes requested, bytes answered. An exchange is valid if **both ends agree**, with the same byte
ranges: a client that sends the next request before it has read the answer (pipelining), or a server that answers before
it has read the whole request, has different exchanges than its peer. If only one end was recorded, its turns are used
as they are.

The client is the end that sent the SYN; if that was not seen, the end with the higher port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.trace.messages.segments import TCP
from hopscope.trace.messages.table import MESSAGE
from hopscope.trace.messages.udp import UDP
from hopscope.trace.names import points
from hopscope.trace.packets.reverse_flows import reverses
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

_SYN, _ACK = 2, 16
_CLIENT, _SERVER = 0, 1

_SYN_SEEN: Final = ("tx.queue", "rx.driver")
_OPENING: Final = f"""
    SELECT DISTINCT flow FROM packets
    WHERE point IN ({{points}}) AND tcp_flags % {2 * _SYN} >= {_SYN} AND tcp_flags % {2 * _ACK} < {_ACK}"""

# A flow under its own name, and under each name given by NAT.
_ALIASES: Final = """
    SELECT flow, flow AS original FROM flows
    WHERE flow IN (SELECT flow FROM socket_calls) OR flow NOT IN (SELECT flow FROM final_translations)
    UNION SELECT flow, original FROM final_translations WHERE original IN (SELECT flow FROM socket_calls)"""

# Requests are sent in `forth`, and answers in `back`.
_PAIRS: Final = f"""
    SELECT DISTINCT protocol, forth, back FROM (
        SELECT f.protocol, a.original AS forth, b.original AS back,
               max(CASE WHEN a.flow IN (SELECT flow FROM syn_flows) THEN 1 ELSE 0 END) OVER forward
               - max(CASE WHEN b.flow IN (SELECT flow FROM syn_flows) THEN 1 ELSE 0 END) OVER forward AS connects,
               f.source_port - f.destination_port AS above
        FROM flow_aliases a JOIN flows f ON f.flow = a.flow
        JOIN ({{reverses}}) r ON r.flow = a.flow
        JOIN flow_aliases b ON b.flow = r.back
        WHERE f.protocol IN ({TCP}, {UDP})
              AND (a.original IN (SELECT flow FROM socket_calls) OR b.original IN (SELECT flow FROM socket_calls))
        WINDOW forward AS (PARTITION BY a.original, b.original)) both_ways
    WHERE connects > 0 OR (connects = 0 AND (above > 0 OR (above = 0 AND forth < back)))"""

# The calls of each end: `at_ns` is when a send call began or a read ended; bytes up to `end_byte` were sent or read.
_CALLS: Final = f"""
    SELECT {TCP} AS protocol, flow, connection, TRUE AS sends, coalesce(call_ns, send_ns, sent_ns) AS at_ns, end_byte,
           end_byte - start_byte AS len_bytes, tid
    FROM tcp_sends
    UNION ALL
    SELECT {TCP}, flow, connection, FALSE, coalesce(received_ns, read_ns), end_byte, 0, tid FROM tcp_reads
    UNION ALL
    SELECT {UDP}, flow, 0, TRUE, coalesce(call_ns, queue_ns), place, len_bytes, sender_tid FROM udp_ordered_messages
    UNION ALL
    SELECT {UDP}, flow, 0, FALSE, received_ns, place, 0, reader_tid FROM udp_ordered_messages
    WHERE received_ns IS NOT NULL"""

# The n-th datagram counts as the n-th byte of a stream. Datagrams of one GSO packet are ordered by their path.
_DATAGRAMS: Final = f"""
    SELECT *, row_number() OVER (PARTITION BY flow ORDER BY queue_ns NULLS LAST, driver_ns NULLS LAST,
                  ready_ns NULLS LAST, received_ns NULLS LAST, ends_ns) AS place
    FROM messages WHERE protocol = {UDP}"""

_ORDERED: Final = f"""
    SELECT *, end_byte AS place FROM messages WHERE protocol = {TCP} UNION ALL SELECT * FROM udp_ordered_messages"""

_OWN: Final = "(PARTITION BY forth, back, connection, side ORDER BY at_ns NULLS LAST, answers{more})"
_TURNS: Final = f"""
    SELECT *, sum(CASE WHEN answers = 0 AND coalesce(before, 1) = 1 THEN 1 ELSE 0 END) OVER
              {_OWN.format(more=" ROWS UNBOUNDED PRECEDING")} AS exchange
    FROM (SELECT *, lag(answers) OVER {_OWN.format(more="")} AS before
          FROM (SELECT p.forth, p.back, s.connection, 0 AS answers, CASE WHEN s.sends THEN {_CLIENT} ELSE {_SERVER} END
                       AS side, s.protocol, s.at_ns, s.end_byte, s.len_bytes, s.tid
                FROM socket_calls s JOIN flow_pairs p ON p.forth = s.flow
                UNION ALL
                SELECT p.forth, p.back, s.connection, 1, CASE WHEN s.sends THEN {_SERVER} ELSE {_CLIENT} END,
                       s.protocol, s.at_ns, s.end_byte, s.len_bytes, s.tid
                FROM socket_calls s JOIN flow_pairs p ON p.back = s.flow) sided) followed"""

# `asked_byte` and `answered_byte` are the ends of the turns; `from_` are those of the previous exchange.
_OF_SIDES: Final = """
    SELECT *, lag(asked_byte) OVER own AS from_asked, lag(answered_byte) OVER own AS from_answered
    FROM (SELECT forth, back, connection, side, exchange, max(protocol) AS protocol,
                 max(CASE WHEN answers = 0 THEN end_byte END) AS asked_byte,
                 max(CASE WHEN answers = 1 THEN end_byte END) AS answered_byte,
                 min(CASE WHEN answers = 0 THEN at_ns END) AS asked_ns,
                 max(CASE WHEN answers = 0 THEN at_ns END) AS last_asked_ns,
                 max(CASE WHEN answers = 1 THEN at_ns END) AS last_answered_ns,
                 CAST(sum(CASE WHEN answers = side THEN 1 ELSE 0 END) AS BIGINT) AS calls,
                 CAST(sum(len_bytes) AS BIGINT) AS len_bytes, max_by(tid, at_ns) AS tid
          FROM exchange_calls GROUP BY forth, back, connection, side, exchange) grouped
    WINDOW own AS (PARTITION BY forth, back, connection, side ORDER BY exchange)"""

_CONNECTION: Final = ("forth", "back", "connection")
# Nothing was asked before an answer that nobody asked for; what the client has not read, it does not have.
_SAME: Final = " AND ".join(
    (
        *(f"c.{name} = s.{name}" for name in _CONNECTION),
        # An equality, by which the engine can join: a byte is never negative.
        "coalesce(c.asked_byte, -1) = coalesce(s.asked_byte, -1)",
        "coalesce(c.answered_byte = s.answered_byte, c.answered_byte IS NULL)",
    )
)
_SAME_START: Final = " AND ".join(f"coalesce(c.{name} = s.{name}, TRUE)" for name in ("from_asked", "from_answered"))
_EITHER: Final = ", ".join(
    f"coalesce(c.{name}, s.{name}) AS {name}" for name in (*_CONNECTION, "protocol", "asked_byte", "answered_byte")
)
_MATCHED: Final = f"""
    SELECT {_EITHER}, c.asked_ns AS begins_ns, c.last_asked_ns, s.last_asked_ns AS asked_ns,
           s.last_answered_ns AS answers_ns, c.last_answered_ns AS ends_ns, c.calls AS requests, s.calls AS answers,
           coalesce(c.len_bytes, s.asked_byte - s.from_asked) AS request_bytes,
           coalesce(s.len_bytes, c.answered_byte - c.from_answered) AS answer_bytes,
           c.tid AS client_tid, s.tid AS server_tid, c.side IS NOT NULL AND s.side IS NOT NULL AS of_both
    FROM (SELECT * FROM side_exchanges WHERE side = {_CLIENT}) c
    FULL JOIN (SELECT * FROM side_exchanges WHERE side = {_SERVER}) s ON {_SAME} AND {_SAME_START}"""

_KEY: Final = ", ".join(_CONNECTION)
# Outcome of an exchange: answered; unasked (the server sent first); unanswered; unread; or the ends disagree
# (overlapping).
_STATED: Final = f"""
    SELECT *, ends_ns - begins_ns AS total_ns,
           CASE WHEN asked_byte IS NULL THEN 'unasked' WHEN answered_byte IS NULL THEN 'unanswered'
                WHEN of_both AND ends_ns IS NULL THEN 'unread'
                WHEN of_both OR sides = 1 THEN 'answered' ELSE 'overlapping' END AS state
    FROM (SELECT m.*, sides FROM matched_exchanges m
          JOIN (SELECT {_KEY}, count(DISTINCT side) AS sides FROM exchange_calls GROUP BY {_KEY}) e
            ON {" AND ".join(f"e.{name} = m.{name}" for name in _CONNECTION)}) of_connections"""


fixed(
    "udp_ordered_messages",
    "a UDP message, with its position in the order of its flow",
    MESSAGE | columns("place", place="its position in the order of the flow"),
    _DATAGRAMS,
    needs=("messages",),
)
fixed(
    "ordered_messages",
    "a message, with the byte by which an exchange refers to it",
    MESSAGE | columns("place", place="TCP: `end_byte`; UDP: its position in the order of the flow"),
    _ORDERED,
    kind="view",
    needs=("messages", "udp_ordered_messages"),
)
fixed(
    "socket_calls",
    "a call that sent to a connection or read from it",
    columns(
        "protocol flow connection sends at_ns end_byte len_bytes tid",
        at_ns="when a send call began or a read ended; NULL: not seen",
        end_byte="offset after the last byte sent or read; UDP: number of the datagram",
        len_bytes="bytes sent; 0: a read",
        tid="calling thread; NULL: not seen",
    ),
    _CALLS,
    needs=("tcp_sends", "tcp_reads", "udp_ordered_messages"),
    temporary=True,
)
fixed(
    "flow_aliases",
    "a name of a flow, its own or one given by NAT",
    columns("flow original", flow="the name"),
    _ALIASES,
    kind="view",
    needs=("socket_calls", "final_translations"),
    temporary=True,
)


@relation("syn_flows", "a TCP flow whose sender opened the connection", columns("flow"), temporary=True)
def _syn_flows(context: Context) -> str:
    number = points(context.trace)
    return _OPENING.format(points=", ".join(str(number.get(name, -1)) for name in _SYN_SEEN))


@relation(
    "flow_pairs",
    "a client's flow, with the flow of the answers",
    columns("protocol forth back"),
    needs=("flow_aliases", "socket_calls", "syn_flows"),
    temporary=True,
)
def _flow_pairs(context: Context) -> str:
    return _PAIRS.format(reverses=reverses(context.trace))


fixed(
    "exchange_calls",
    "a call, with the number of its exchange as seen from its end of the connection",
    columns(
        "forth back connection answers side protocol at_ns end_byte len_bytes tid before exchange",
        answers="1: part of the answer; 0: part of the request",
        at_ns="when a send call began or a read ended; NULL: not seen",
        end_byte="offset after the last byte sent or read; UDP: number of the datagram",
        len_bytes="bytes sent; 0: a read",
        tid="calling thread; NULL: not seen",
        before="`answers` of the previous call; NULL: none",
    ),
    _TURNS,
    needs=("socket_calls", "flow_pairs"),
    temporary=True,
)
fixed(
    "side_exchanges",
    "an exchange as seen from one end of the connection",
    columns(
        "forth back connection side exchange protocol asked_byte answered_byte asked_ns last_asked_ns",
        "last_answered_ns calls len_bytes tid from_asked from_answered",
        asked_ns="when the first call of the request began (sending) or ended (receiving); NULL: not seen",
        last_asked_ns="when the last call of the request began (sending) or ended (receiving); NULL: not seen",
        len_bytes="bytes sent by this side",
        tid="thread of the last call; NULL: not seen",
    ),
    _OF_SIDES,
    needs=("exchange_calls",),
    temporary=True,
)
fixed(
    "matched_exchanges",
    "an exchange as recorded by both ends of the connection, or by one of them",
    columns(
        "forth back connection protocol asked_byte answered_byte begins_ns last_asked_ns asked_ns answers_ns",
        "ends_ns requests answers request_bytes answer_bytes client_tid server_tid of_both",
        begins_ns="when the client's first send call of the request began; NULL: not seen",
        ends_ns="when the client had read the answer; NULL: not seen",
    ),
    _MATCHED,
    needs=("side_exchanges",),
    temporary=True,
)
fixed(
    "exchanges",
    "a request and its answer, as far as they were recorded",
    columns(
        "forth back connection protocol asked_byte answered_byte begins_ns last_asked_ns asked_ns answers_ns",
        "ends_ns requests answers request_bytes answer_bytes client_tid server_tid of_both sides total_ns state",
        begins_ns="when the client's first send call of the request began; NULL: not seen",
        ends_ns="when the client had read the answer; NULL: not seen",
        total_ns="`ends_ns - begins_ns`; NULL: the client was not seen",
        state="`answered`, `unasked`, `unanswered`, `unread`, or `overlapping` (the two ends disagree)",
    ),
    _STATED,
    needs=("matched_exchanges", "exchange_calls"),
)
