# SPDX-License-Identifier: Apache-2.0
"""The system calls of a trace on sockets, and those that waited for them: what each returned, and how long it took.

Requests of io_uring are calls, too: from their submission to a completion.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.report import Column, Report, of_rows
from hopscope.model.system_calls import call_name, request_name
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.names import UNNAMED, points
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("at_ns", "at_ns", "time at which the call began", "time"),
    Column("thread", "text", "name and number of the thread", "thread"),
    Column("call", "text", "name of the system call; of a request of io_uring, `uring` and its name", "call"),
    Column("fd", "number", "its file descriptor; null: it has none", "fd"),
    Column(
        "len_bytes", "bytes", "size of the buffer; null: the call does not have it as an argument", "buffer", rank=2
    ),
    Column("result", "number", "what it returned; negative: errno; null: its end was not recorded", "result"),
    Column("error", "text", "name of the error", "error", rank=1),
    Column("duration_ns", "ns", "how long it took", "took"),
    Column(
        "flow_name", "text", "flow of the socket: of its last recorded event, in the direction of that", "flow", rank=1
    ),
    Column("flow", "id", "number of the flow", "number", rank=9),
)
SUMMARY_COLUMNS: Final = (
    Column("call", "text", "name of the system call, or of the request of io_uring", "call"),
    Column("calls", "count", "number of calls", "calls"),
    Column("errors", "count", "calls that failed", "errors"),
    Column("sum_ns", "ns", "total duration", "total"),
    Column("mean_ns", "ns", "mean duration", "mean"),
    Column("p50_ns", "ns", "median duration", "p50"),
    Column("p99_ns", "ns", "99th percentile", "p99"),
    Column("max_ns", "ns", "maximum", "max"),
    Column("unended", "count", "calls whose end was not recorded", "no end", rank=1),
)
# The third argument of these is the size of a buffer; these have no file descriptor as the first one.
_SIZED: Final = frozenset({"read", "write", "sendto", "recvfrom"})
_WITHOUT_FD: Final = frozenset({"socket", "poll", "ppoll", "select", "pselect6"})
_MOST_ERRNO: Final = 4095

# A call ends with the next event of its thread, if that is an end: the beginning of another one says that it was lost.
_CALLS: Final = """
    SELECT c.time_ns, c.thread_name, c.machine, c.number, c.fd, c.size,
           CASE WHEN c.next_point = {exit} AND c.next_number = c.number THEN c.next_result END AS result,
           CASE WHEN c.next_point = {exit} AND c.next_number = c.number THEN c.next_ns - c.time_ns END AS took_ns,
           c.sock
    FROM (SELECT s.time_ns, s.point, s.tid, s.sock, s.value AS number, s.seq AS fd, s.len_bytes AS size,
                 coalesce(t.thread, concat('?-', s.tid)) AS thread_name, coalesce(h.machine, '{machine}') AS machine,
                 lead(s.point) OVER calls AS next_point, lead(s.value) OVER calls AS next_number,
                 lead(s.len_bytes) OVER calls AS next_result, lead(s.time_ns) OVER calls AS next_ns
          FROM sockets s LEFT JOIN thread_names t ON t.tid = s.tid LEFT JOIN hosts h ON h.host = {host}
          WHERE s.point IN ({enter}, {exit}) AND {threads}
          WINDOW calls AS (PARTITION BY s.tid ORDER BY s.time_ns, s.point)) c
    WHERE c.point = {enter} AND {window} ORDER BY c.time_ns, c.thread_name"""
# A request has a number, and one that goes on (multishot) completes several times.
_REQUESTS: Final = """
    SELECT s.time_ns, coalesce(t.thread, concat('?-', s.tid)), s.protocol, s.len_bytes, c.len_bytes,
           c.time_ns - s.time_ns, coalesce(c.sock, s.sock)
    FROM (SELECT *, lead(time_ns) OVER (PARTITION BY seq, value, protocol ORDER BY time_ns) AS next_ns
          FROM sockets WHERE point = {submit} AND {threads}) s
    LEFT JOIN sockets c ON c.point = {complete} AND c.seq = s.seq AND c.value = s.value AND c.protocol = s.protocol
         AND c.time_ns >= s.time_ns AND (s.next_ns IS NULL OR c.time_ns < s.next_ns)
    LEFT JOIN thread_names t ON t.tid = s.tid
    WHERE {window} ORDER BY s.time_ns, c.time_ns"""
_FLOWS: Final = """
    SELECT s.sock, s.time_ns, s.flow, coalesce(n.name, {unnamed}) AS name, {wanted} AS wanted
    FROM sockets s LEFT JOIN flow_names n ON n.flow = s.flow
    WHERE s.flow <> 0 AND s.sock <> 0 ORDER BY s.sock, s.time_ns"""
Call = tuple[int, str, str, "int | None", "int | None", "int | None", "int | None", "str | None", "int | None"]


def calls(trace: Trace, selection: Selection, *, limit: int | None = None, slowest: bool = False) -> Report:
    """Return a row per system call, in chronological order, or the slowest first."""
    found = _found(trace, selection)
    if slowest:
        found.sort(key=lambda call: -(call[6] or 0))
    started_ns = trace.metadata.started_ns
    rows: list[list[Value]] = [
        [at_ns - started_ns, thread, name, fd, size, result, _error(result), took_ns, flow_name, flow]
        for at_ns, thread, name, fd, size, result, took_ns, flow_name, flow in found[:limit]
    ]
    return of_rows("calls", COLUMNS, rows, notes=_notes(trace), left_out=len(found) - len(rows))


def summary(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per kind of system call, those that took longest in total first."""
    by_name: dict[str, list[Call]] = {}
    for call in _found(trace, selection):
        by_name.setdefault(call[2], []).append(call)
    rows = [_summed(name, same) for name, same in by_name.items()]
    return longest_first("calls.summary", SUMMARY_COLUMNS, rows, limit, _notes(trace))


def longest_first(
    name: str, columns: Sequence[Column], rows: list[list[Value]], limit: int | None, notes: Sequence[str]
) -> Report:
    """Return a report of these rows, sorted by their column `sum_ns`, the largest first."""
    total = next(index for index, column in enumerate(columns) if column.name == "sum_ns")
    rows.sort(key=lambda row: float(row[total] or 0), reverse=True)
    left_out = 0 if limit is None else max(len(rows) - limit, 0)
    return of_rows(name, columns, rows[:limit], notes=notes, left_out=left_out)


def durations(took_ns: Sequence[int]) -> list[Value]:
    """Return sum, median, 99th percentile and maximum of durations in ns, of at least one."""
    middle, late = (float(each) for each in np.percentile(took_ns, (50, 99)))
    return [sum(took_ns), middle, late, max(took_ns)]


def _summed(name: str, same: Sequence[Call]) -> list[Value]:
    took_ns = [call[6] for call in same if call[6] is not None]
    errors = sum(_error(call[5]) is not None for call in same)
    if not took_ns:
        return [name, len(same), errors, *[None] * 5, len(same)]
    total, *percentiles = durations(took_ns)
    return [name, len(same), errors, total, sum(took_ns) / len(took_ns), *percentiles, len(same) - len(took_ns)]


def _found(trace: Trace, selection: Selection) -> list[Call]:
    """Return the selected calls in chronological order."""
    build(trace, "flow_names", "thread_names")
    numbers = points(trace)
    query = _CALLS.format(
        enter=numbers.get("call.enter", -1),
        exit=numbers.get("call.exit", -1),
        machine=str(trace.metadata.host.get("machine", "")).replace("'", ""),
        host=host_of_cpu("s.cpu"),
        threads=f"s.tid IN ({selection.threads(trace)})" if selection.processes else "TRUE",
        window=selection.window(trace, "c.time_ns"),
    )
    flows = _Flows(trace, selection)
    found: list[Call] = []
    for time_ns, thread, machine, number, fd, size, result, took_ns, sock in trace.rows(query):
        name = call_name(number, machine)
        flow_name, flow, wanted = flows.of(sock, time_ns + (took_ns or 0))
        if (selection.is_by_flow or selection.namespaces) and not wanted:
            continue
        # Without ends, the arguments were not recorded either.
        fd_or_none = fd if sock or (took_ns is not None and name not in _WITHOUT_FD) else None
        buffer = size if fd_or_none is not None and name in _SIZED else None
        found.append((time_ns, thread, name, fd_or_none, buffer, result, took_ns, flow_name, flow))
    requests = _requests(trace, selection, flows)
    return sorted([*found, *requests], key=lambda call: call[:2]) if requests else found


def _requests(trace: Trace, selection: Selection, flows: _Flows) -> list[Call]:
    """Return the selected requests of io_uring in chronological order."""
    numbers = points(trace)
    query = _REQUESTS.format(
        submit=numbers.get("uring.submit", -1),
        complete=numbers.get("uring.complete", -1),
        threads=f"tid IN ({selection.threads(trace)})" if selection.processes else "TRUE",
        window=selection.window(trace, "s.time_ns"),
    )
    found: list[Call] = []
    for time_ns, thread, opcode, fd, result, took_ns, sock in trace.rows(query):
        flow_name, flow, wanted = flows.of(sock, time_ns + (took_ns or 0))
        if wanted or not (selection.is_by_flow or selection.namespaces):
            found.append((time_ns, thread, request_name(opcode), fd, None, result, took_ns, flow_name, flow))
    return found


class _Flows:
    """The flows of sockets over time, as their other events have them."""

    def __init__(self, trace: Trace, selection: Selection) -> None:
        wanted = f"CASE WHEN {selection.flow(trace, 's.flow')} AND {selection.namespace(trace, 's.')} THEN 1 ELSE 0 END"
        rows = trace.rows(_FLOWS.format(unnamed=UNNAMED.format("s.flow"), wanted=wanted))
        self._of: dict[int, tuple[NDArray[np.int64], list[tuple[str, int, bool]]]] = {}
        socks: dict[int, list[tuple[int, str, int, bool]]] = {}
        for sock, time_ns, flow, name, is_wanted in rows:
            socks.setdefault(sock, []).append((time_ns, name, flow, bool(is_wanted)))
        for sock, events in socks.items():
            self._of[sock] = np.array([event[0] for event in events], np.int64), [event[1:] for event in events]

    def of(self, sock: int, until_ns: int) -> tuple[str | None, int | None, bool]:
        """Return name and number of a socket's last flow until then, else of its first; and whether it is selected."""
        if not sock or sock not in self._of:
            return None, None, False
        times, events = self._of[sock]
        return events[max(int(np.searchsorted(times, until_ns, "right")) - 1, 0)]


def _error(result: Value) -> str | None:
    if not isinstance(result, int) or not -_MOST_ERRNO <= result < 0:
        return None
    return errno.errorcode.get(-result, str(-result))


def _notes(trace: Trace) -> list[str]:
    numbers = points(trace)
    point = numbers.get("call.exit", -1)
    notes = []
    if not trace.rows(f"SELECT 1 FROM sockets WHERE point = {point} LIMIT 1"):
        notes.append("the trace has no ends of system calls: record with `-P calls`")
    return [*notes, *loss_notes(trace), *unattached_notes(trace, ("call.enter", "call.exit"))]
