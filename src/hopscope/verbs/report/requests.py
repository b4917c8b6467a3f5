# SPDX-License-Identifier: Apache-2.0
"""The report ``requests``: response times, and their causes: the request's path, the server, or the answer's path."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.protocols import http2
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.trace.causes.blame import NAMES, cause_totals, held_by, longest
from hopscope.trace.gaps import loss_notes, unfollowed_notes
from hopscope.trace.messages.contents import has_contents
from hopscope.trace.relation import build, columns, relation
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import UNKNOWN
from hopscope.verbs.report.messages import share
from hopscope.verbs.report.request_names import RELATIONS, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.model.report import Value
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
    Column(
        "protocol",
        "text",
        "application protocol: http1, http2, grpc, redis, postgresql, dns, kafka or tls; tcp or udp if it is not known",
        "proto",
        rank=6,
    ),
    Column("flow", "id", "number of the flow from client to server", "number", rank=9),
)
# Of a trace with contents (`record --bytes`).
NAMED_COLUMNS: Final = (
    Column("operation", "text", "method and path, or command; null: not known", "operation"),
    Column("status", "text", "status of the answer, in the protocol's own terms; null: not known", "status", rank=1),
)

BY: Final = ("protocol", "operation", "status")
BY_COLUMNS: Final = tuple(Column(by, "text", f"{by} of the requests in this row; -: not known", by) for by in BY)
GROUP_COLUMNS: Final = (
    Column("count", "count", "number of requests", "requests"),
    Column("sum_ns", "ns", "sum of the total times", "sum", rank=1),
    Column("p50_ns", "ns", "median of the total time", "p50"),
    Column("p99_ns", "ns", "99th percentile of the total time", "p99"),
    Column("max_ns", "ns", "maximum of the total time", "max"),
    Column("server_p50_ns", "ns", "median of the time in the server", "server p50"),
    Column("server_p99_ns", "ns", "99th percentile of the time in the server", "server p99"),
    Column("server_max_ns", "ns", "maximum of the time in the server", "server max", rank=1),
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


def requests(trace: Trace, selection: Selection, *, by: str | None = None, limit: int | None = None) -> Report:
    """Return a row per answered request, slowest first, with the share of each holder in the heading.

    Parameters
    ----------
    trace, selection
        The trace, and the requests that are wanted.
    by
        One of :data:`BY`: one row per group, those with most requests first, instead of one per request.
    limit
        Maximum number of rows.
    """
    every = replace(selection, flows=(), processes=(), interfaces=(), namespaces=(), from_s=None, until_s=None)
    contents = RELATIONS if has_contents(trace) else ()
    build(trace, *_RELATIONS, *contents, selection=every, wanted=selection, limit=None if by else limit)
    answered = "SELECT * FROM wanted_exchanges WHERE state = 'answered'"
    counts = {state: (int(count), int(connections)) for state, count, connections in trace.rows(_COUNTS)}
    count = sum(counts[state][0] for state in ("answered", "one end") if state in counts)
    rows = trace.columns("SELECT * FROM shown_requests ORDER BY coalesce(total_ns, answers_ns - asked_ns) DESC, number")
    values = _values(trace, rows)
    heading = _heading(trace, answered, count) if count else []
    notes = [*_notes(counts, unfollowed_notes(trace)), *_naming_notes(trace, values, by), *loss_notes(trace)]
    if by:
        return _groups(values, by, limit, notes, heading)
    columns = COLUMNS if not contents else _with_names()
    return Report("requests", columns, values, notes, count - len(rows["forth"]), heading)


def _with_names() -> Sequence[Column]:
    """Return the columns of a trace with contents: protocol, operation and status come before the flow."""
    ranks = {"protocol": 2, "flow_name": 2}
    columns = {column.name: replace(column, rank=ranks.get(column.name, column.rank)) for column in COLUMNS}
    protocol = columns.pop("protocol")
    place = list(columns).index("flow_name")
    others = list(columns.values())
    return (*others[:place], protocol, *NAMED_COLUMNS, *others[place:])


def _groups(
    values: Mapping[str, NDArray[Any]], by: str, limit: int | None, notes: Sequence[str], heading: Sequence[str]
) -> Report:
    names = np.ma.MaskedArray(values[by]).filled(UNKNOWN)
    found, counts = np.unique(names.astype(str), return_counts=True)
    order = sorted(zip(found.tolist(), counts.tolist(), strict=True), key=lambda group: (-group[1], group[0]))
    rows: list[list[Value]] = []
    for name, count in order[:limit]:
        total_ns, server_ns = (_known(values[column][names == name]) for column in ("total_ns", "server_ns"))
        spread = [int(total_ns.sum()), *_spread(total_ns)] if len(total_ns) else [None] * 4
        rows.append([name, count, *spread, *_spread(server_ns)])
    columns = (BY_COLUMNS[BY.index(by)], *GROUP_COLUMNS)
    return of_rows("requests.groups", columns, rows, notes=notes, left_out=len(order) - len(rows), heading=heading)


def _known(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.ma.MaskedArray(column).compressed().astype(np.int64)


def _spread(times_ns: NDArray[np.int64]) -> list[Value]:
    """Return median, 99th percentile and maximum; None where there are no times."""
    if not len(times_ns):
        return [None] * 3
    return [*(float(each) for each in np.percentile(times_ns, (50, 99))), int(times_ns.max())]


def _naming_notes(trace: Trace, values: Mapping[str, NDArray[Any]], by: str | None) -> list[str]:
    """Return sentences on why protocols are not known."""
    if not has_contents(trace):
        return ["protocols are not known: record with `--bytes 512`"] if by else []
    if {http2.NAME, http2.GRPC} & {*values["protocol"]} and not http2.has_decoder():
        return ["HTTP/2: methods, paths and statuses need the Python package hpack (pip install 'hopscope[http2]')"]
    return []


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
        **names(trace, rows, "shown_requests"),
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
