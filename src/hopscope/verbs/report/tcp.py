# SPDX-License-Identifier: Apache-2.0
"""The TCP connections of a trace: windows, round-trip times, retransmissions, and what kept each from sending.

The state of a connection is recorded when a segment comes to it, before TCP looks at it. Once one end has closed, it is
recorded when the connection sends, and when it changes its state (``tcp.probe``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.message import CONGESTION_STATES, SSTHRESH_NOT_SET
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.term.tcp_svg import Connection, Line, Span
from hopscope.trace.causes.limits import NONE
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.names import UNNAMED, points
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

_FLOW_NAME: Final = Column("flow_name", "text", "from the socket > to its peer", "connection")
_FLOW: Final = Column("flow", "id", "number of the flow", "number", rank=9)
COLUMNS: Final = (
    _FLOW_NAME,
    Column("netns", "number", "inode of the socket's network namespace", "netns", rank=9),
    Column("states", "count", "states that were recorded: segments that came, until an end closed", "states", rank=4),
    Column(
        "acked_bytes",
        "bytes",
        "sequence numbers acknowledged from the first state to the last: bytes, and the FIN",
        "acked",
    ),
    Column("retransmits", "count", "segments that were sent again", "retr"),
    Column("srtt_min_ns", "ns", "smoothed round-trip time: minimum", "min", rank=2),
    Column("srtt_mean_ns", "ns", "its mean over the states", "srtt"),
    Column("srtt_max_ns", "ns", "its maximum", "max", rank=1),
    Column("cwnd_max", "count", "congestion window: maximum, packets", "cwnd max", rank=3),
    Column("cwnd", "count", "the last one, packets", "cwnd"),
    Column("ssthresh", "count", "slow start threshold at the end, packets; null: not set", "ssthresh", rank=3),
    Column("in_flight_max", "count", "packets in flight: maximum", "in flight", rank=3),
    Column("snd_wnd_min_bytes", "bytes", "the peer's receive window: minimum", "snd_wnd min", rank=2),
    Column("rcv_wnd_min_bytes", "bytes", "the socket's own receive window: minimum", "rcv_wnd min", rank=5),
    Column(
        "limit",
        "text",
        "cause that kept it from sending for longest (docs/causes.md); other: TCP waits for none of them",
        "limited by",
    ),
    Column("limited_ns", "ns", "for how long", "for"),
    Column("first_ns", "at_ns", "time of the first state", "first", rank=6),
    Column("last_ns", "at_ns", "time of the last state", "last", rank=6),
    _FLOW,
)
HISTORY_COLUMNS: Final = (
    Column("at_ns", "at_ns", "time of this state", "time"),
    _FLOW_NAME,
    Column("netns", "number", "inode of the socket's network namespace", "netns", rank=9),
    Column("acked_bytes", "bytes", "sequence numbers acknowledged since the connection's first row", "acked"),
    Column("unacked_bytes", "bytes", "sent and not acknowledged", "unacked", rank=3),
    Column("in_flight", "count", "packets in flight; 65535: as many or more", "flight", rank=4),
    Column("cwnd", "count", "congestion window, packets", "cwnd"),
    Column("ssthresh", "count", "slow start threshold, packets; null: not set", "ssthresh", rank=2),
    Column("srtt_ns", "ns", "smoothed round-trip time; null: not measured", "srtt"),
    Column("snd_wnd_bytes", "bytes", "the peer's receive window", "snd_wnd", rank=1),
    Column("rcv_wnd_bytes", "bytes", "the socket's own receive window", "rcv_wnd", rank=2),
    Column("state", "text", "state of congestion control: open, disorder, reduced, recovery, loss", "state", rank=2),
    Column("limit", "text", "the cause that keeps it from sending", "limited by"),
    _FLOW,
)
_ESTABLISHED: Final = 1
_CIRCLE: Final = 1 << 32
_NS_PER_S: Final = 1e9

# A connection that is established begins a new row: addresses and ports may be those of one before.
_CONNECTIONS: Final = f"""
    WITH marks AS (
        SELECT flow, netns, time_ns, 1 AS opens FROM sockets WHERE point = {{state}} AND value % 256 = {_ESTABLISHED}
        UNION ALL SELECT flow, netns, time_ns, 0 FROM tcp WHERE {{wanted}}),
    numbered AS (
        SELECT flow, netns, time_ns, opens,
               sum(opens) OVER (PARTITION BY flow, netns ORDER BY time_ns, opens DESC) AS connection FROM marks),
    steps AS (
        SELECT t.*, n.connection,
               (t.snd_una - lag(t.snd_una) OVER (PARTITION BY t.flow, t.netns, n.connection ORDER BY t.time_ns)
                + {_CIRCLE}) % {_CIRCLE} AS acked,
               row_number() OVER (PARTITION BY t.flow, t.netns, n.connection ORDER BY t.time_ns DESC) AS from_end
        FROM tcp t JOIN (SELECT DISTINCT flow, netns, time_ns, connection FROM numbered WHERE opens = 0) n
        ON n.flow = t.flow AND n.netns = t.netns AND n.time_ns = t.time_ns WHERE {{wanted_t}})"""
# The clock of one of two CPUs may be behind: then there is a step back, too.
_ACKED: Final = f"CASE WHEN acked < {_CIRCLE // 2} THEN acked ELSE acked - {_CIRCLE} END"
_SUMMARY: Final = f"""{_CONNECTIONS}
    SELECT s.flow, coalesce(max(n.name), {{unnamed}}) AS name, s.netns, count(*) AS states,
           CAST(coalesce(sum({_ACKED}), 0) AS BIGINT) AS acked_bytes,
           min(CASE WHEN srtt_us > 0 THEN srtt_us END) * 1000 AS srtt_min_ns,
           sum(srtt_us) * 1000 / count(CASE WHEN srtt_us > 0 THEN 1 END) AS srtt_mean_ns,
           max(CASE WHEN srtt_us > 0 THEN srtt_us END) * 1000 AS srtt_max_ns, max(snd_cwnd) AS cwnd_max,
           max(CASE WHEN from_end = 1 THEN snd_cwnd END) AS cwnd,
           max(CASE WHEN from_end = 1 AND ssthresh < {SSTHRESH_NOT_SET} THEN ssthresh END) AS ssthresh,
           max(in_flight) AS in_flight_max, min(snd_wnd) AS snd_wnd_min, min(rcv_wnd) AS rcv_wnd_min,
           min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM steps s LEFT JOIN flow_names n ON n.flow = s.flow
    GROUP BY s.flow, s.netns, s.connection ORDER BY acked_bytes DESC, first_ns, s.flow"""
_HISTORY: Final = f"""{_CONNECTIONS}
    SELECT time_ns, coalesce(n.name, {{unnamed}}) AS name, netns,
           CAST(sum(coalesce({_ACKED}, 0)) OVER (PARTITION BY s.flow, netns, connection ORDER BY time_ns) AS BIGINT)
               AS acked_bytes,
           (snd_nxt - snd_una + {_CIRCLE}) % {_CIRCLE} AS unacked_bytes, in_flight, snd_cwnd,
           CASE WHEN ssthresh < {SSTHRESH_NOT_SET} THEN ssthresh END AS ssthresh,
           CASE WHEN srtt_us > 0 THEN srtt_us * 1000 END AS srtt_ns, snd_wnd, rcv_wnd, state, s.flow,
           count(*) OVER () AS states
    FROM steps s LEFT JOIN flow_names n ON n.flow = s.flow ORDER BY time_ns, s.flow"""
_NEEDED: Final = ("tcp.probe", "tcp.state", "tcp.retransmit", "tx.limit")


def connections(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per TCP connection and end of it, those with most acknowledged bytes first."""
    limits = _Limits(trace, selection)
    again = _retransmits(trace, selection)
    rows = trace.rows(_query(_SUMMARY, trace, selection))
    started_ns = trace.metadata.started_ns
    table: list[list[Value]] = []
    for flow, name, netns, states, acked, *values, first_ns, last_ns in rows[:limit]:
        sent_again = again.get((flow, netns), np.zeros(0, np.int64))
        retransmits = int(np.count_nonzero((sent_again >= first_ns) & (sent_again <= last_ns)))
        longest, limited_ns = limits.longest(flow, first_ns, last_ns)
        where = [first_ns - started_ns, last_ns - started_ns, flow]
        table.append([name, netns, states, acked, retransmits, *values, longest, limited_ns, *where])
    return of_rows("tcp", COLUMNS, table, notes=_notes(trace, rows), left_out=len(rows) - len(table))


def history(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per segment that came to a TCP connection, in chronological order: its state until then."""
    limits = _Limits(trace, selection)
    query = _query(_HISTORY, trace, selection)
    rows = trace.rows(query if limit is None else f"{query} LIMIT {limit}")
    started_ns = trace.metadata.started_ns
    table: list[list[Value]] = [
        [time_ns - started_ns, *values, _state(state), limits.at(flow, time_ns), flow]
        for time_ns, *values, state, flow, _ in rows
    ]
    left_out = rows[0][-1] - len(rows) if rows else 0
    return of_rows("tcp.history", HISTORY_COLUMNS, table, notes=_notes(trace, rows), left_out=left_out)


def picture(trace: Trace, selection: Selection) -> Connection | None:
    """Return the selected connection with most acknowledged bytes over time; None if there is none."""
    found = connections(trace, selection, limit=1)
    if not len(found):
        return None
    (row,) = found.rows()
    one = dict(zip((column.name for column in COLUMNS), row, strict=True))
    flow, first_ns, last_ns = (int(one[name] or 0) for name in ("flow", "first_ns", "last_ns"))
    of_flow = replace(selection, flows=(str(flow),))
    states = history(trace, of_flow)
    mine = [
        place
        for place, (at_ns, netns) in enumerate(zip(states.column("at_ns"), states.column("netns"), strict=True))
        if netns == one["netns"] and first_ns <= int(at_ns or 0) <= last_ns
    ]

    def line(name: str, column: str, *more: str) -> Line:
        values = sum(np.array(states.column(each), np.float64)[mine] for each in (column, *more))
        return Line(name, np.asarray(values, np.float64))

    started_ns = trace.metadata.started_ns
    period_ns = started_ns + first_ns, started_ns + last_ns
    again = _retransmits(trace, of_flow).get((flow, int(one["netns"] or 0)), np.zeros(0, np.int64))
    return Connection(
        f"TCP connection {one['flow_name']}",
        np.array(states.column("at_ns"), np.float64)[mine] / _NS_PER_S,
        sequence=(
            line("end of the peer's window", "acked_bytes", "snd_wnd_bytes"),
            line("sent", "acked_bytes", "unacked_bytes"),
            line("acknowledged", "acked_bytes"),
        ),
        packets=(line("congestion window", "cwnd"), line("ssthresh", "ssthresh"), line("in flight", "in_flight")),
        delays_ns=(line("srtt", "srtt_ns"),),
        spans=[
            Span(cause, *((each - started_ns) / _NS_PER_S for each in span_ns))
            for cause, *span_ns in _Limits(trace, of_flow).spans(flow, *period_ns)
        ],
        resent_s=((again[(again >= period_ns[0]) & (again <= period_ns[1])] - started_ns) / _NS_PER_S).tolist(),
    )


class _Limits:
    """What kept each flow from sending, and from when on."""

    def __init__(self, trace: Trace, selection: Selection) -> None:
        build(trace, "tcp_limits", "flow_names")
        rows = trace.rows(
            f"SELECT subject, time_ns, state FROM tcp_limits WHERE {selection.flow(trace, 'subject')}"
            " ORDER BY subject, time_ns, place"
        )
        self._of: dict[int, tuple[list[int], list[str]]] = {}
        for flow, time_ns, state in rows:
            times, states = self._of.setdefault(flow, ([], []))
            times.append(time_ns)
            states.append(state.replace("_", "-"))  # as causes are named

    def at(self, flow: int, time_ns: int) -> str | None:
        """Return what kept it from sending at that time; None if nothing did, or it is not known."""
        times, states = self._of.get(flow, ([], []))
        place = int(np.searchsorted(times, time_ns, "right")) - 1
        return states[place] if place >= 0 and states[place] != NONE else None

    def longest(self, flow: int, first_ns: int, last_ns: int) -> tuple[str | None, int | None]:
        """Return what kept it from sending for longest in a period, and for how long; None if nothing did."""
        spent: dict[str, int] = {}
        for state, from_ns, until_ns in self.spans(flow, first_ns, last_ns):
            spent[state] = spent.get(state, 0) + until_ns - from_ns
        longest = max(spent, key=lambda state: spent[state], default=None)
        return longest, None if longest is None else spent[longest]

    def spans(self, flow: int, first_ns: int, last_ns: int) -> list[tuple[str, int, int]]:
        """Return what kept it from sending in a period, from when, and until when."""
        times, states = self._of.get(flow, ([], []))
        edges = np.clip(np.array([*times, last_ns], np.int64), first_ns, last_ns).tolist()
        spans = zip(states, edges, edges[1:], strict=False)
        return [
            (state, from_ns, until_ns) for state, from_ns, until_ns in spans if state != NONE and until_ns > from_ns
        ]


def _query(query: str, trace: Trace, selection: Selection) -> str:
    return query.format(
        state=points(trace).get("tcp.state", -1),
        wanted=f"{selection.window(trace)} AND {selection.flow(trace)} AND {selection.namespace(trace)}",
        wanted_t=f"{selection.window(trace, 't.time_ns')} AND {selection.flow(trace, 't.flow')}"
        f" AND {selection.namespace(trace, 't.')}",
        unnamed=UNNAMED.format("s.flow"),
    )


def _retransmits(trace: Trace, selection: Selection) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return (flow, namespace) → when its segments were sent again."""
    found: dict[tuple[int, int], list[int]] = {}
    point = points(trace).get("tcp.retransmit", -1)
    for flow, netns, time_ns in trace.rows(
        f"SELECT flow, netns, time_ns FROM packets WHERE point = {point} AND {selection.flow(trace)}"
    ):
        found.setdefault((flow, netns), []).append(time_ns)
    return {key: np.sort(np.array(times, np.int64)) for key, times in found.items()}


def _state(number: int) -> str:
    return CONGESTION_STATES[number] if 0 <= number < len(CONGESTION_STATES) else str(number)


def _notes(trace: Trace, rows: list[tuple[Value, ...]]) -> list[str]:
    notes = []
    ((recorded,),) = trace.rows("SELECT count(*) FROM tcp")
    if not recorded:
        notes.append("the trace has no state of TCP connections: record with `-P tcp`, or with `--point tcp.probe`")
    elif not rows:
        notes.append(f"none of the {plural(recorded, 'recorded state')} is of a selected connection and period")
    return [*notes, *loss_notes(trace), *unattached_notes(trace, _NEEDED)]
