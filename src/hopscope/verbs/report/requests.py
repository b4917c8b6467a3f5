# SPDX-License-Identifier: Apache-2.0
"""The report ``requests``: response times, and their causes: the request's path, the server, or the answer's path."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.report import Column, Report
from hopscope.term.format import plural
from hopscope.trace.causes.blame import NAMES, cause_totals, held_by, longest
from hopscope.trace.gaps import loss_notes, unfollowed_notes
from hopscope.trace.relation import build, columns, relation
from hopscope.trace.selection import Selection
from hopscope.verbs.report.messages import share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context

CLIENT: Final = "client"
SERVER: Final = "application"
_REQUEST, _ANSWER = (tuple(f"{which}: {cause}" for cause in NAMES) for which in ("request", "answer"))
_HOLDERS: Final = (CLIENT, *_REQUEST, SERVER, *_ANSWER)

# Holders with a smaller share of the time are not named.
_LEAST_SHARE: Final = 0.01

COLUMNS: Final = (
    Column(
        "begin_ns",
        "at_ns",
        "beginning of the client's first send call, or the server's read if the client was not recorded",
        "begin",
    ),
    Column("total_ns", "ns", "time from that send call to the client's read of the last byte of the answer", "total"),
    Column(
        "blame",
        "text",
        "what held it longest: a cause (docs/causes.md) on the way of the request or of the answer, the client "
        "between its send calls, or the server's `application`",
        "held by",
    ),
    Column("blame_ns", "ns", "time that it was held there", "for"),
    Column(
        "request_ns",
        "ns",
        "time from the client's first send call to the server's read of the last byte of the request",
        "request",
        rank=2,
    ),
    Column("server_ns", "ns", "time from that read to the server's last send call of the answer", "server"),
    Column(
        "answer_ns",
        "ns",
        "time from that send call to the client's read of the last byte of the answer",
        "answer",
        rank=2,
    ),
    Column("request_bytes", "bytes", "length of the request", "bytes", rank=4),
    Column("answer_bytes", "bytes", "length of the answer", "bytes", rank=4),
    Column("requests", "count", "send calls of the request", "sends", rank=5),
    Column("answers", "count", "send calls of the answer", "sends", rank=5),
    Column("flow_name", "text", "client > server, as seen by the client", "flow"),
    Column("client", "text", "thread that sent the request", "client", rank=3),
    Column("server", "text", "thread that sent the answer", "server", rank=3),
    Column("protocol", "text", "tcp or udp", "proto", rank=6),
    Column("flow", "id", "number of the flow from client to server", "number", rank=9),
)

_QUERY: Final = """
    SELECT e.*, coalesce(n.name, CAST(forth AS STRING)) AS flow_name, c.name AS client, s.name AS server
    FROM ({wanted}) e LEFT JOIN flow_names n ON n.flow = forth
    LEFT JOIN thread_names c ON c.tid = client_tid LEFT JOIN thread_names s ON s.tid = server_tid
    ORDER BY coalesce(total_ns, answers_ns - asked_ns) DESC, number"""
_MESSAGE: Final = "m.flow = e.{flow} AND m.connection = e.connection AND m.place = e.{place}"
# Of a message that a damaged recording has twice, one.
_ONE_MESSAGE: Final = (
    "SELECT flow, connection, place, min(message) AS message FROM ordered_messages GROUP BY flow, connection, place"
)
_OWN: Final = {"request": ("forth", "asked_byte"), "answer": ("back", "answered_byte")}


_RELATIONS: Final = (
    "ordered_messages", "message_causes", "wanted_exchanges", "shown_requests", "flow_names", "thread_names",
)  # fmt: skip


@relation(
    "wanted_exchanges",
    "a selected exchange, with its position in chronological order",
    columns(
        "forth back connection protocol asked_byte answered_byte begins_ns last_asked_ns asked_ns answers_ns",
        "ends_ns requests answers request_bytes answer_bytes client_tid server_tid of_both sides total_ns state",
        "number",
        begins_ns="when the client's first send call of the request began; NULL: not seen",
        ends_ns="when the client had read the answer; NULL: not seen",
        total_ns="`ends_ns - begins_ns`; NULL: the client was not seen",
        state="`answered`, `unasked`, `unanswered`, `unread`, or `overlapping` (the two ends disagree)",
    ),
    needs=("exchanges", "final_translations"),
    parameters=("wanted",),
    report="requests",
)
def _wanted_exchanges(context: Context) -> str:
    first = (
        "coalesce(begins_ns, asked_ns) NULLS LAST, forth, connection, asked_byte NULLS LAST, answered_byte NULLS LAST"
    )
    number = f"row_number() OVER (ORDER BY {first})"
    return (
        f"SELECT *, {number} AS number FROM exchanges WHERE {wanted(context.trace, context['wanted'] or Selection())}"
    )


@relation(
    "shown_requests",
    "an answered request shown by the report",
    columns(
        "forth back connection protocol asked_byte answered_byte begins_ns last_asked_ns asked_ns answers_ns",
        "ends_ns requests answers request_bytes answer_bytes client_tid server_tid of_both sides total_ns state",
        "number flow_name client server",
        begins_ns="when the client's first send call of the request began; NULL: not seen",
        ends_ns="when the client had read the answer; NULL: not seen",
        total_ns="`ends_ns - begins_ns`; NULL: the client was not seen",
        state="`answered`, `unasked`, `unanswered`, `unread`, or `overlapping` (the two ends disagree)",
        flow_name="name of the request's flow",
        client="name of the client's thread; NULL: not seen",
        server="name of the server's thread; NULL: not seen",
    ),
    needs=("wanted_exchanges", "flow_names", "thread_names"),
    parameters=("limit",),
    report="requests",
)
def _shown_requests(context: Context) -> str:
    query = _QUERY.format(wanted="SELECT * FROM wanted_exchanges WHERE state = 'answered'")
    return query if context["limit"] is None else f"{query} LIMIT {context['limit']}"


def requests(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per answered request, slowest first, with the share of each holder in the heading."""
    every = replace(selection, flows=(), processes=(), interfaces=(), namespaces=(), from_s=None, until_s=None)
    build(trace, *_RELATIONS, selection=every, wanted=selection, limit=limit)
    answered = "SELECT * FROM wanted_exchanges WHERE state = 'answered'"
    counts = {state: (int(count), int(connections)) for state, count, connections in trace.rows(_COUNTS)}
    count = sum(counts[state][0] for state in ("answered", "one end") if state in counts)
    rows = trace.columns("SELECT * FROM shown_requests ORDER BY coalesce(total_ns, answers_ns - asked_ns) DESC, number")
    values = _values(trace, rows)
    heading = _heading(trace, answered, count) if count else []
    notes = [*_notes(counts, unfollowed_notes(trace)), *loss_notes(trace)]
    return Report("requests", COLUMNS, values, notes, count - len(rows["forth"]), heading)


_COUNTS: Final = """
    SELECT CASE WHEN state = 'answered' AND NOT of_both THEN 'one end' ELSE state END, count(*),
           count(DISTINCT concat(forth, ' ', connection))
    FROM wanted_exchanges GROUP BY 1"""


def wanted(trace: Trace, selection: Selection) -> str:
    """Return the condition on an exchange: its beginning, its flow in either direction, its threads and its device."""
    own = replace(selection, processes=())
    parts = [selection.window(trace, "coalesce(begins_ns, asked_ns, answers_ns, ends_ns)")]
    flows = [f"SELECT flow FROM flows WHERE {own.flow(trace, 'flow')}"]
    if selection.is_by_place:
        flows.append(selection.passing(trace))
    for each in flows:
        aliases = f"{each} UNION ALL SELECT original FROM final_translations WHERE flow IN ({each})"
        parts.append(f"(forth IN ({aliases}) OR back IN ({aliases}))")
    if selection.processes:
        threads = selection.threads(trace)
        parts.append(f"(client_tid IN ({threads}) OR server_tid IN ({threads}))")
    return " AND ".join(parts)


def _values(trace: Trace, rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    begins = np.ma.MaskedArray(rows["begins_ns"])
    times = {name: np.ma.MaskedArray(rows[name]) for name in ("asked_ns", "answers_ns", "ends_ns", "last_asked_ns")}
    server_ns = times["answers_ns"] - times["asked_ns"]
    held = _held(trace, times["last_asked_ns"] - begins, server_ns)
    blame, blame_ns = longest(_HOLDERS, held)
    begin_ns = np.where(np.ma.getmaskarray(begins), np.ma.filled(times["asked_ns"], 0), np.ma.filled(begins, 0))
    same = ("total_ns", "request_bytes", "answer_bytes", "requests", "answers", "flow_name", "client", "server")
    return {
        "begin_ns": begin_ns - trace.metadata.started_ns,
        "blame": blame,
        "blame_ns": blame_ns,
        "request_ns": times["asked_ns"] - begins,
        "server_ns": server_ns,
        "answer_ns": times["ends_ns"] - times["answers_ns"],
        "protocol": np.where(np.asarray(rows["protocol"]) == 6, "tcp", "udp"),
        "flow": rows["forth"],
        **{name: rows[name] for name in same},
    }


def _held(trace: Trace, client_ns: NDArray[Any], server_ns: NDArray[Any]) -> NDArray[np.int64]:
    """Return the time for which each of :data:`_HOLDERS` held each of the shown exchanges, ns."""
    ways = []
    for flow, place in _OWN.values():
        own = _MESSAGE.format(flow=flow, place=place)
        ways.append(
            held_by(
                trace.columns(
                    f"SELECT c.* FROM shown_requests e LEFT JOIN ({_ONE_MESSAGE}) m ON {own}"
                    " LEFT JOIN message_causes c ON c.message = m.message"
                    f" ORDER BY coalesce(e.total_ns, e.answers_ns - e.asked_ns) DESC, e.number"
                )
            )
        )
    request, answer = ways
    return np.vstack([np.ma.filled(client_ns, 0)[None, :], request, np.ma.filled(server_ns, 0)[None, :], answer])


def _heading(trace: Trace, answered: str, count: int) -> list[str]:
    totals = dict.fromkeys(_HOLDERS, 0)
    (sums,) = trace.rows(
        "SELECT coalesce(sum(last_asked_ns - begins_ns), 0), coalesce(sum(answers_ns - asked_ns), 0)"
        f" FROM ({answered}) e"
    )
    totals[CLIENT], totals[SERVER] = map(int, sums)
    for which, (flow, place) in _OWN.items():
        messages = (
            f"(SELECT c.* FROM ordered_messages m JOIN ({answered}) e ON {_MESSAGE.format(flow=flow, place=place)}"
            " JOIN message_causes c ON c.message = m.message)"
        )
        for cause, held_ns in cause_totals(trace, messages).items():
            totals[f"{which}: {cause}"] = held_ns
    whole_ns = sum(totals.values()) or 1
    told = (item for item in totals.items() if item[1] >= _LEAST_SHARE * whole_ns)
    held = sorted(told, key=lambda item: -item[1])
    shares = ", ".join(f"{holder} {share(held_ns, whole_ns)}" for holder, held_ns in held)
    return [f"{plural(count, 'answered request')}; share of the time: {shares}", ""]


_OVERLAPPING: Final = "overlapping (pipelined) requests cannot be matched with their answers"
_UNASKED: Final = (
    "the server sent first, the request preceded the recording, or its datagram was not received on this host"
)
_REASONS: Final = {
    "one end": (
        "recorded at one end only",
        "the times of the other end are missing, and overlapping requests cannot be detected",
    ),
    "overlapping": ("not matched", _OVERLAPPING),
    "unanswered": ("not matched", "no answer was sent during the recording"),
    "unread": ("not matched", "the answer was sent, but not read during the recording"),
    "unasked": ("not matched", _UNASKED),
}


def _notes(counts: Mapping[str, tuple[int, int]], unfollowed: Sequence[str]) -> Sequence[str]:
    notes = [*unfollowed]
    if not unfollowed and not {"answered", "one end"} & set(counts):
        notes.append("no answered requests: they require send and receive calls of both directions (`-P messages`)")
    for state, (what, reason) in _REASONS.items():
        if state in counts:
            count, connections = counts[state]
            of = f"{count:,} on {plural(connections, 'connection')}"
            notes.append(f"{what}: {of}: {reason}")
    return notes
