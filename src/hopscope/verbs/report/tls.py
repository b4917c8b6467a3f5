# SPDX-License-Identifier: Apache-2.0
"""The calls of a trace in TLS libraries: plaintext, over which socket it went, and the time that was the library's.

A socket belongs to a call if the thread used it between the beginning and the end of the call; in Go, if the goroutine
did. Where there was none, or were several, the flow is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.report import Column, Report, of_rows
from hopscope.store.plaintext import PLAINTEXTS, risk_notes
from hopscope.trace.gaps import loss_notes, unattached, unattached_notes
from hopscope.trace.names import CLEAN, UNNAMED, points
from hopscope.trace.relation import build
from hopscope.verbs.report.calls import durations, longest_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

_POINTS: Final = ("tls.write", "tls.read")
# What says which socket a call was about.
_NEEDED: Final = ("call.enter", "call.exit", "tx.sent", "rx.received")
COLUMNS: Final = (
    Column("at_ns", "at_ns", "time at which the call began", "time"),
    Column("thread", "text", "name and number of the thread; in Go, of the one on which it ended", "thread"),
    Column(
        "call", "text", "`write` (SSL_write, gnutls_record_send, …) or `read` (SSL_read, gnutls_record_recv, …)", "call"
    ),
    Column("plain_bytes", "bytes", "plaintext that it took or gave; null: none", "plain"),
    Column(
        "socket_bytes",
        "bytes",
        "bytes that it sent to (write) or received from (read) sockets; null: not recorded",
        "on socket",
    ),
    Column("duration_ns", "ns", "how long it took", "took"),
    Column(
        "library_ns",
        "ns",
        "time of it outside of system calls on sockets: encryption, and waiting for a CPU; null: not known, as in Go",
        "in library",
    ),
    Column("calls", "count", "system calls on sockets, or that wait for them, during the call", "syscalls", rank=2),
    Column(
        "flow_name", "text", "flow of the socket, in the direction of the data; null: none, or several", "flow", rank=1
    ),
    Column("text", "text", "the first bytes of the plaintext, escaped; null: not recorded", "contents", rank=2),
    Column("result", "number", "what the call returned, or the plaintext bytes of SSL_*_ex", "result", rank=3),
    Column(
        "connection",
        "id",
        "address of the library's object for the connection; reused after it is freed",
        "SSL",
        rank=8,
    ),
    Column("flow", "id", "number of the flow", "number", rank=9),
)
SUMMARY_COLUMNS: Final = (
    Column("process", "text", "name and number of the process", "process"),
    Column("call", "text", "`write` or `read`", "call"),
    Column("calls", "count", "number of calls", "calls"),
    Column("failed", "count", "calls that took or gave no plaintext", "none"),
    Column("plain_bytes", "bytes", "plaintext", "plain"),
    Column("socket_bytes", "bytes", "bytes on sockets; null: not recorded", "on socket"),
    Column("sum_ns", "ns", "total duration", "total"),
    Column("library_ns", "ns", "total time outside of system calls on sockets, as far as it is known", "in library"),
    Column("p50_ns", "ns", "median duration", "p50"),
    Column("p99_ns", "ns", "99th percentile", "p99", rank=1),
    Column("max_ns", "ns", "maximum", "max", rank=1),
)

# What a thread does belongs to the call that it began last, if that has not ended. A system call ends with the next
# event of its thread, if that is an end: the beginning of another one says that it was lost. A function of a library
# that calls another one for the same connection is one call with it. A goroutine goes from thread to thread: what it
# did on sockets has the number of its call.
_CALLS: Final = """
    WITH found AS (
        SELECT time_ns - value AS begin_ns, time_ns AS end_ns, tid, point, sock, len_bytes AS result,
               seq AS number
        FROM sockets WHERE point IN ({write}, {read}) AND {threads}),
    within AS (
        SELECT *, max(end_ns) OVER (PARTITION BY tid, point, sock ORDER BY begin_ns, end_ns DESC
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS outer_ns
        FROM found),
    tls AS (
        SELECT row_number() OVER (ORDER BY begin_ns, tid, end_ns) AS id, begin_ns, end_ns, tid, point, sock, result,
               number
        FROM within WHERE outer_ns IS NULL OR outer_ns < end_ns),
    called AS (
        SELECT time_ns, tid, CASE WHEN next_point = {exit} AND next_value = value THEN next_ns - time_ns END AS took_ns
        FROM (SELECT time_ns, tid, point, value, lead(point) OVER turns AS next_point,
                     lead(value) OVER turns AS next_value, lead(time_ns) OVER turns AS next_ns
              FROM sockets WHERE point IN ({enter}, {exit})
              WINDOW turns AS (PARTITION BY tid ORDER BY time_ns, point)) c
        WHERE point = {enter}),
    events AS (
        SELECT begin_ns AS time_ns, tid, id, 0 AS point, 0 AS flow, 0 AS len_bytes, 0 AS took_ns
        FROM tls WHERE number = 0
        UNION ALL
        SELECT time_ns, tid, NULL, point, flow, len_bytes, NULL FROM sockets WHERE point IN ({sent}, {received})
        UNION ALL
        SELECT time_ns, tid, NULL, {enter}, 0, 0, took_ns FROM called),
    owned AS (
        SELECT time_ns, point, flow, len_bytes, took_ns,
               max(id) OVER (PARTITION BY tid ORDER BY time_ns, point ROWS UNBOUNDED PRECEDING) AS id
        FROM events),
    used AS (
        SELECT t.id, t.point AS of_point, o.point, o.flow, o.len_bytes, o.took_ns
        FROM owned o JOIN tls t ON t.id = o.id WHERE o.point <> 0 AND o.time_ns <= t.end_ns
        UNION ALL
        SELECT t.id, t.point, s.value, s.flow, s.len_bytes, NULL
        FROM sockets s JOIN tls t ON t.number = s.seq AND t.sock = s.sock AND s.time_ns BETWEEN t.begin_ns AND t.end_ns
        WHERE s.point = {socket}),
    inside AS (
        SELECT id, sum(CASE WHEN point = {enter} THEN 1 ELSE 0 END) AS calls,
               sum(CASE WHEN point = {enter} AND took_ns IS NULL THEN 1 ELSE 0 END) AS unended,
               sum(CASE WHEN point = {enter} THEN took_ns ELSE 0 END) AS called_ns,
               sum(CASE WHEN point = {data} AND len_bytes > 0 THEN len_bytes ELSE 0 END) AS bytes,
               min(CASE WHEN point = {data} THEN flow END) AS flow,
               max(CASE WHEN point = {data} THEN flow END) AS last_flow
        FROM used GROUP BY id),
    joined AS (
        SELECT t.*, CASE WHEN t.number = 0 THEN coalesce(i.calls, 0) END AS calls,
               CASE WHEN t.number = 0 OR {seen} THEN coalesce(i.bytes, 0) END AS socket_bytes,
               CASE WHEN coalesce(i.unended, 0) = 0 AND t.number = 0
                    THEN t.end_ns - t.begin_ns - coalesce(i.called_ns, 0) END AS library_ns,
               CASE WHEN i.flow = i.last_flow THEN i.flow END AS flow
        FROM tls t LEFT JOIN inside i ON i.id = t.id)
    SELECT j.begin_ns, coalesce(n.thread, concat('?-', j.tid)), coalesce(n.name, concat('? (', j.tid, ')')), j.point,
           j.result, j.socket_bytes, j.end_ns - j.begin_ns, j.library_ns, j.calls,
           CASE WHEN j.flow IS NOT NULL THEN coalesce(f.name, {unnamed}) END, j.sock, j.flow, {text}
    FROM joined j LEFT JOIN thread_names n ON n.tid = j.tid LEFT JOIN flow_names f ON f.flow = j.flow
         {contents}
    WHERE {window} AND {wanted} ORDER BY j.id"""

_CONTENTS: Final = f"LEFT JOIN {PLAINTEXTS.name} c ON c.tid = j.tid AND c.time_ns = j.end_ns"


class _Call(NamedTuple):
    begin_ns: int
    thread: str
    process: str
    kind: str
    result: int
    socket_bytes: int | None
    took_ns: int
    library_ns: int | None
    calls: int | None
    flow_name: str | None
    connection: int
    flow: int | None
    text: str | None

    @property
    def plain_bytes(self) -> int | None:
        return self.result if self.result > 0 else None


def tls(trace: Trace, selection: Selection, *, limit: int | None = None, slowest: bool = False) -> Report:
    """Return a row per call in a TLS library, in chronological order, or the slowest first."""
    found = _found(trace, selection)
    if slowest:
        found.sort(key=lambda call: -call.took_ns)
    started_ns = trace.metadata.started_ns
    rows: list[list[Value]] = [
        [
            call.begin_ns - started_ns,
            call.thread,
            call.kind,
            call.plain_bytes,
            call.socket_bytes,
            call.took_ns,
            call.library_ns,
            call.calls,
            call.flow_name,
            call.text,
            call.result,
            call.connection,
            call.flow,
        ]
        for call in found[:limit]
    ]
    return of_rows("tls", COLUMNS, rows, notes=_notes(trace), left_out=len(found) - len(rows))


def summary(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per process and kind of call, those that took longest in total first."""
    same: dict[tuple[str, str], list[_Call]] = {}
    for call in _found(trace, selection):
        same.setdefault((call.process, call.kind), []).append(call)
    rows = [[*key, *_summed(calls)] for key, calls in same.items()]
    return longest_first("tls.summary", SUMMARY_COLUMNS, rows, limit, _notes(trace))


def _summed(calls: Sequence[_Call]) -> list[Value]:
    total, *percentiles = durations([call.took_ns for call in calls])
    library = [call.library_ns for call in calls if call.library_ns is not None]
    on_sockets = [call.socket_bytes for call in calls if call.socket_bytes is not None]
    return [
        len(calls),
        sum(call.plain_bytes is None for call in calls),
        sum(call.plain_bytes or 0 for call in calls),
        sum(on_sockets) if on_sockets else None,
        total,
        sum(library) if library else None,
        *percentiles,
    ]


def _found(trace: Trace, selection: Selection) -> list[_Call]:
    """Return the selected calls in chronological order."""
    build(trace, "flow_names", "thread_names")
    numbers = points(trace)
    number = {name: numbers.get(name, -1) for name in (*_POINTS, *_NEEDED)}
    sent, received, used = number["tx.sent"], number["rx.received"], numbers.get("tls.socket", -1)
    has_contents = any(table.name == PLAINTEXTS.name for table in trace.metadata.tables)
    query = _CALLS.format(
        write=number["tls.write"],
        read=number["tls.read"],
        enter=number["call.enter"],
        exit=number["call.exit"],
        sent=sent,
        received=received,
        socket=used,
        data=f"CASE WHEN of_point = {number['tls.write']} THEN {sent} ELSE {received} END",
        threads=f"tid IN ({selection.threads(trace)})" if selection.processes else "TRUE",
        seen="TRUE" if trace.rows(f"SELECT 1 FROM sockets WHERE point = {used} LIMIT 1") else "FALSE",
        text=CLEAN.format("c.text") if has_contents else "NULL",
        contents=_CONTENTS if has_contents else "",
        window=selection.window(trace, "j.begin_ns"),
        wanted=_of_flows(trace, selection),
        unnamed=UNNAMED.format("j.flow"),
    )
    absent = unattached(trace)
    timed = not absent.keys() & {"call.enter", "call.exit"}
    found = []
    for row in trace.rows(query):
        call = _Call(*row)
        is_write = row[3] == number["tls.write"]
        counted = ("tx.sent" if is_write else "rx.received") not in absent
        found.append(
            call._replace(
                kind="write" if is_write else "read",
                socket_bytes=call.socket_bytes if counted else None,
                library_ns=call.library_ns if timed else None,
                calls=call.calls if timed else None,
            )
        )
    return found


def _of_flows(trace: Trace, selection: Selection) -> str:
    parts = [selection.flow(trace, "j.flow")] if selection.is_by_flow else []
    if selection.namespaces:
        parts.append(f"j.flow IN (SELECT flow FROM sockets WHERE {selection.namespace(trace)})")
    return " AND ".join(parts) or "TRUE"


def _notes(trace: Trace) -> list[str]:
    numbers = points(trace)
    wanted = ", ".join(str(numbers.get(name, -1)) for name in _POINTS)
    notes = []
    if not trace.rows(f"SELECT 1 FROM sockets WHERE point IN ({wanted}) LIMIT 1"):
        notes.append("the trace has no calls of TLS libraries: record with `--library auto`")
    return [*notes, *risk_notes(trace.metadata.tables), *loss_notes(trace), *unattached_notes(trace, _NEEDED)]
