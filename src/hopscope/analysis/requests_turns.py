# SPDX-License-Identifier: Apache-2.0
"""Who of a connection's two ends spoke when, and which answer is to which request: the table ``exchanges``.

An end sees itself send and read, in the order of its own clock. What it sends from one read to the next is a turn. A
request is the client's turn, the answer is the turn in which the server then speaks. Each end that was recorded gives a
list of exchanges: so many bytes asked, so many answered. An exchange is one if **both ends have it**, from the same
bytes to the same bytes: a client that asks again before it has read the answer (pipelining), or a server that answers
before it has read all that was asked, has others than its peer. Where only one end was recorded, its turns are taken as
they are.

The client is the end that sent the SYN; if that was not seen, the one with the greater port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.messages_segments import TCP
from hopscope.analysis.messages_udp import UDP
from hopscope.analysis.names import points
from hopscope.analysis.reverse_flows import reverses

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

_SYN, _ACK = 2, 16
_CLIENT, _SERVER = 0, 1

_SYN_SEEN: Final = ("tx.queue", "rx.driver")
_ASKING: Final = f"""
    SELECT DISTINCT flow FROM packets
    WHERE point IN ({{points}}) AND tcp_flags % {2 * _SYN} >= {_SYN} AND tcp_flags % {2 * _ACK} < {_ACK}"""

# A flow under each name that NAT gave it.
_ALIASES: Final = """
    SELECT flow, flow AS original FROM flows
    WHERE flow IN (SELECT flow FROM spoken) OR flow NOT IN (SELECT flow FROM last_translations)
    UNION SELECT flow, original FROM last_translations WHERE original IN (SELECT flow FROM spoken)"""

# Who asks in `forth` is answered in `back`.
_PAIRS: Final = f"""
    SELECT DISTINCT protocol, forth, back FROM (
        SELECT f.protocol, a.original AS forth, b.original AS back,
               max(CASE WHEN a.flow IN (SELECT flow FROM asking) THEN 1 ELSE 0 END) OVER forward
               - max(CASE WHEN b.flow IN (SELECT flow FROM asking) THEN 1 ELSE 0 END) OVER forward AS connects,
               f.source_port - f.destination_port AS above
        FROM aliases a JOIN flows f ON f.flow = a.flow
        JOIN ({{reverses}}) r ON r.flow = a.flow
        JOIN aliases b ON b.flow = r.back
        WHERE f.protocol IN ({TCP}, {UDP})
              AND (a.original IN (SELECT flow FROM spoken) OR b.original IN (SELECT flow FROM spoken))
        WINDOW forward AS (PARTITION BY a.original, b.original)) both_ways
    WHERE connects > 0 OR (connects = 0 AND (above > 0 OR (above = 0 AND forth < back)))"""

# What each end says: `at_ns` is when a send call began, or a read was done; bytes up to `end_byte` are sent, or read.
_SPOKEN: Final = f"""
    SELECT {TCP} AS protocol, flow, connection, TRUE AS sends, coalesce(call_ns, send_ns, sent_ns) AS at_ns, end_byte,
           end_byte - start_byte AS len_bytes, tid
    FROM sends
    UNION ALL
    SELECT {TCP}, flow, connection, FALSE, coalesce(received_ns, read_ns), end_byte, 0, tid FROM reads
    UNION ALL
    SELECT {UDP}, flow, 0, TRUE, coalesce(call_ns, queue_ns), place, len_bytes, sender_tid FROM datagram_messages
    UNION ALL
    SELECT {UDP}, flow, 0, FALSE, received_ns, place, 0, reader_tid FROM datagram_messages
    WHERE received_ns IS NOT NULL"""

# A datagram is as a byte of a stream: the n-th. Of those that were one packet up to the driver (GSO), the way tells.
_DATAGRAMS: Final = f"""
    SELECT *, row_number() OVER (PARTITION BY flow ORDER BY queue_ns NULLS LAST, driver_ns NULLS LAST,
                  ready_ns NULLS LAST, received_ns NULLS LAST, ends_ns) AS place
    FROM messages WHERE protocol = {UDP}"""

_SAID: Final = f"""
    SELECT *, end_byte AS place FROM messages WHERE protocol = {TCP} UNION ALL SELECT * FROM datagram_messages"""

_OWN: Final = "(PARTITION BY forth, back, connection, side ORDER BY at_ns NULLS LAST, answers{more})"
_TURNS: Final = f"""
    SELECT *, sum(CASE WHEN answers = 0 AND coalesce(before, 1) = 1 THEN 1 ELSE 0 END) OVER
              {_OWN.format(more=" ROWS UNBOUNDED PRECEDING")} AS exchange
    FROM (SELECT *, lag(answers) OVER {_OWN.format(more="")} AS before
          FROM (SELECT p.forth, p.back, s.connection, 0 AS answers, CASE WHEN s.sends THEN {_CLIENT} ELSE {_SERVER} END
                       AS side, s.protocol, s.at_ns, s.end_byte, s.len_bytes, s.tid
                FROM spoken s JOIN pairs p ON p.forth = s.flow
                UNION ALL
                SELECT p.forth, p.back, s.connection, 1, CASE WHEN s.sends THEN {_SERVER} ELSE {_CLIENT} END,
                       s.protocol, s.at_ns, s.end_byte, s.len_bytes, s.tid
                FROM spoken s JOIN pairs p ON p.back = s.flow) told) followed"""

# `asked_byte` and `answered_byte` are where the turns end; `from_` are those of the exchange before.
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
          FROM turns GROUP BY forth, back, connection, side, exchange) grouped
    WINDOW own AS (PARTITION BY forth, back, connection, side ORDER BY exchange)"""

_CONNECTION: Final = ("forth", "back", "connection")
_SAME: Final = " AND ".join(f"c.{name} = s.{name}" for name in (*_CONNECTION, "asked_byte", "answered_byte"))
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
    FROM (SELECT * FROM exchanges_of_sides WHERE side = {_CLIENT}) c
    FULL JOIN (SELECT * FROM exchanges_of_sides WHERE side = {_SERVER}) s ON {_SAME} AND {_SAME_START}"""

_KEY: Final = ", ".join(_CONNECTION)
# What became of an exchange: answered; unasked (the server spoke first); unanswered; or the ends do not agree on it.
_STATED: Final = f"""
    SELECT *, ends_ns - begins_ns AS total_ns,
           CASE WHEN asked_byte IS NULL THEN 'unasked' WHEN answered_byte IS NULL THEN 'unanswered'
                WHEN of_both OR sides = 1 THEN 'answered' ELSE 'overlapping' END AS state
    FROM (SELECT m.*, sides FROM matched m
          JOIN (SELECT {_KEY}, count(DISTINCT side) AS sides FROM turns GROUP BY {_KEY}) e
            ON {" AND ".join(f"e.{name} = m.{name}" for name in _CONNECTION)}) of_connections"""


def make_exchanges(trace: Trace) -> None:
    """Make the table ``exchanges`` and the view ``said``: messages with the byte that an exchange names them by.

    The tables ``messages``, ``sends``, ``reads`` and ``last_translations`` must be there.
    """
    number = points(trace)
    trace.make_table("datagram_messages", _DATAGRAMS)
    trace.make_view("said", _SAID)
    trace.make_table("spoken", _SPOKEN)
    trace.make_view("aliases", _ALIASES)
    trace.make_table("asking", _ASKING.format(points=", ".join(str(number.get(name, -1)) for name in _SYN_SEEN)))
    trace.make_table("pairs", _PAIRS.format(reverses=reverses(trace)))
    trace.make_table("turns", _TURNS)
    trace.make_table("exchanges_of_sides", _OF_SIDES)
    trace.make_table("matched", _MATCHED)
    trace.make_table("exchanges", _STATED)
    trace.drop("spoken", "asking", "turns", "exchanges_of_sides", "matched")
