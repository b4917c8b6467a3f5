# SPDX-License-Identifier: Apache-2.0
"""The lifetimes of skbs: which events belong to the same packet.

A lifetime consists of the events at one address from a beginning to an end (:mod:`hopscope.trace.packets.continues`).
If events were lost in between, it is unknown whether they belong to the same packet, and they are treated as different
ones.

The number of a packet is unique in a trace, and the same in every analysis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.store.engine import last_known
from hopscope.trace.host_numbers import cpu_step, host_of_cpu
from hopscope.trace.names import points
from hopscope.trace.packets.continues import BESIDE, CONTENT, PLACE, holds, transitions
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Context

# Maximum number of addresses in a query.
MOST_ADDRESSES: Final = 4096
_COLUMNS: Final = "time_ns, cpu, point, tid, skb, head, flow, len_bytes, header_bytes, seq, tcp_flags, ifindex, netns"
_NAMED: Final = ("tx.start", *BESIDE)
_BEFORE: Final = ("point", "time_ns", "cpu", "head", "content", "place")

# A host was absent in between, and not before its first event or after its last.
_MISSING: Final = "SELECT host, from_ns, until_ns FROM absences WHERE from_ns > {started_ns} AND until_ns < {ended_ns}"
# Intervals in which events were lost on any CPU of a host, merged where they overlap, with the beginning of the next.
_GAPS: Final = f"""
    WITH every AS (
        SELECT {host_of_cpu("cpu")} AS host, from_ns, until_ns FROM losses WHERE lost > 0 UNION ALL {_MISSING}),
    ordered AS (
        SELECT host, from_ns, until_ns, max(until_ns) OVER (PARTITION BY host
                   ORDER BY from_ns, until_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
        FROM every),
    numbered AS (
        SELECT host, from_ns, until_ns, sum(CASE WHEN before_ns >= from_ns THEN 0 ELSE 1 END) OVER (PARTITION BY host
                   ORDER BY from_ns, until_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS gap
        FROM ordered),
    joined AS (SELECT host, min(from_ns) AS from_ns, max(until_ns) AS until_ns FROM numbered GROUP BY host, gap)
    SELECT host, from_ns, until_ns,
           coalesce(lead(from_ns) OVER (PARTITION BY host ORDER BY from_ns), 9223372036854775807) AS next_ns
    FROM joined"""

_KNOWN: Final = (
    f"{last_known('content')} OVER"
    " (PARTITION BY skb ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known_content"
)
_STEPS: Final = f"""
    SELECT s.*, {holds("t.condition")} AND {{clean}} AS continues, {holds("t.condition")} AND NOT {{clean}} AS broken
    FROM (SELECT {_COLUMNS}{{carried}}, place, content, {_KNOWN},
                 {", ".join(f"lag({name}) OVER own AS from_{name}" for name in _BEFORE)}
          FROM (SELECT *, {PLACE} AS place, {CONTENT} AS content FROM packets WHERE point NOT IN ({{beside}})) p
          WINDOW own AS (PARTITION BY skb ORDER BY time_ns)) s
    LEFT JOIN skb_transitions t ON t.before = s.from_point AND t.point = s.point{{gaps}}"""
_CLEAN: Final = "(g.until_ns IS NULL OR s.from_time_ns > g.until_ns)"
_WITH_GAPS: Final = (
    f" LEFT JOIN loss_spans g ON g.host = {host_of_cpu('s.cpu')} AND s.time_ns >= g.from_ns AND s.time_ns < g.next_ns"
)

# The driver's function runs on one CPU, and that of a lower device returns before that of the upper one. The packet may
# have been freed by then, and the address reused.
_BESIDE: Final = f"""
    SELECT s.*, s.from_point = {{tx_start}} AND {{clean}} AS continues,
           s.from_point = {{tx_start}} AND NOT {{clean}} AS broken
    FROM (SELECT {_COLUMNS}, lag(point) OVER own AS from_point, lag(time_ns) OVER own AS from_time_ns,
                 lag(cpu) OVER own AS from_cpu{{carried}}
          FROM {{source}} WHERE point IN ({{tx_start}}, {{tx_driver}})
          WINDOW own AS (PARTITION BY skb, cpu, ifindex, netns ORDER BY time_ns, point)) s{{gaps}}
    WHERE s.point = {{tx_driver}}"""

_OWN_NUMBER: Final = "(time_ns - {started_ns}) * {cpu_step} + cpu"
_LAST_KNOWN: Final = ", ".join(
    f"{last_known(f'CASE WHEN {name} <> 0 OR NOT continues THEN {name} END')} OVER own AS life_{name}"
    for name in ("flow", "ifindex", "netns")
)
_CHAINS: Final = f"""
    SELECT {_COLUMNS}, from_point, from_time_ns, from_cpu, continues, broken,
           {last_known(f"CASE WHEN continues THEN NULL ELSE {_OWN_NUMBER} END")} OVER own AS packet,
           {_LAST_KNOWN}
    FROM skb_steps
    WINDOW own AS (PARTITION BY skb ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"""
# tx.driver has no lifetime of its own from which to take them.
_CARRIED: Final = ("packet", "life_flow", "life_ifindex", "life_netns")
_STARTS: Final = f"""
    SELECT {_COLUMNS}, {", ".join(_CARRIED)} FROM {{steps}} WHERE point = {{tx_start}}
    UNION ALL
    SELECT {_COLUMNS}, {_OWN_NUMBER}, 0, ifindex, netns FROM packets WHERE point = {{tx_driver}}"""

_BESIDE_LIVES: Final = f"""
    SELECT {_COLUMNS}, from_point, from_time_ns, from_cpu, continues, broken,
           {", ".join(f"CASE WHEN continues THEN from_{name} ELSE {name} END AS {name}" for name in _CARRIED)}
    FROM ({_BESIDE}) b"""
_BEFORE_OR_NULL: Final = ", ".join(
    f"CASE WHEN continues THEN {name} END AS {name}" for name in ("from_point", "from_time_ns", "from_cpu")
)
# Driver returns have the packets of their calls, which are steps, too: these are computed once for both.
_LIVES: Final = f"""
    WITH steps_once AS (
        SELECT {_COLUMNS}, from_point, from_time_ns, from_cpu, continues, {", ".join(_CARRIED)}
        FROM skb_step_lifetimes)
    SELECT {_COLUMNS}, {_BEFORE_OR_NULL}, {", ".join(_CARRIED)} FROM steps_once
    UNION ALL
    SELECT {_COLUMNS}, {_BEFORE_OR_NULL}, {", ".join(_CARRIED)} FROM ({{returns}}) r
    UNION ALL
    SELECT {_COLUMNS}, NULL, NULL, NULL, {_OWN_NUMBER}, flow, ifindex, netns
    FROM packets WHERE point = {{retransmit}}"""


@relation(
    "skb_transitions",
    "a point that may follow another one in the lifetime of an skb",
    columns(
        "before point condition",
        before="the previous point",
        point="the point",
        condition="number of the condition under which both belong to the same packet "
        "(hopscope.trace.packets.continues)",
    ),
    aliases=("transitions",),
)
def _transitions(context: Context) -> str:
    return _transitions_of(points(context.trace))


def _transitions_of(numbers: Mapping[str, int]) -> str:
    listed = ", ".join(f"({before}, {point}, {rule})" for before, point, rule in transitions(numbers))
    values = f"(VALUES {listed})" if listed else "(SELECT 0, 0, 0 WHERE FALSE)"
    return f"SELECT * FROM {values} AS t(before, point, condition)"


@relation(
    "loss_spans",
    "a period in which events of a host are missing",
    columns("host from_ns until_ns next_ns", next_ns="when the next such period of the host begins; 2^63 - 1: never"),
    aliases=("gaps",),
)
def _loss_spans(context: Context) -> str:
    return _GAPS.format(**_ends(context.trace))


@relation(
    "skb_steps",
    "an event on a packet's path, with the previous event at the same skb address",
    columns(
        "time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns place content",
        "known_content from_point from_time_ns from_cpu from_head from_content from_place continues broken",
    ),
    kind="view",
    needs=("skb_transitions", "loss_spans"),
    aliases=("steps",),
)
def _steps(context: Context) -> str:
    number = _numbers(context.trace)
    beside = ", ".join(str(number[name]) for name in BESIDE)
    return _STEPS.format(beside=beside, carried="", **_loss_terms(context.trace))


@relation(
    "driver_returns",
    "the return of a driver's transmit function (`tx.driver`), with its call (`tx.start`) as the previous event",
    columns(
        "time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns from_point",
        "from_time_ns from_cpu continues broken",
        continues="whether the previous event is its call",
        broken="whether it would be if no events were missing in between",
    ),
    kind="view",
    needs=("loss_spans",),
    aliases=("beside",),
)
def _driver_returns(context: Context) -> str:
    return _BESIDE.format(source="packets", carried="", **_driver_terms(context.trace))


@relation(
    "skb_step_lifetimes",
    "an event on a packet's path, with its packet",
    columns(
        "time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns from_point",
        "from_time_ns from_cpu continues broken packet life_flow life_ifindex life_netns",
    ),
    kind="view",
    needs=("skb_steps",),
    aliases=("chains",),
)
def _step_lifetimes(context: Context) -> str:
    return _CHAINS.format(**_packet_terms(context.trace))


@relation(
    "driver_return_lifetimes",
    "the return of a driver's transmit function, with its packet",
    columns(
        "time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns from_point",
        "from_time_ns from_cpu continues broken packet life_flow life_ifindex life_netns",
        continues="whether the previous event is its call",
        broken="whether it would be if no events were missing in between",
    ),
    kind="view",
    needs=("skb_step_lifetimes", "loss_spans"),
    aliases=("beside_lives",),
)
def _driver_return_lifetimes(context: Context) -> str:
    return _returns_of(context.trace, "skb_step_lifetimes")


def _returns_of(trace: Trace, steps: str) -> str:
    """Return the query for driver returns with their packets, which their calls have among these steps."""
    terms = _driver_terms(trace)
    starts = _STARTS.format(steps=steps, **_packet_terms(trace), **terms)
    carried = "".join(f", {name}, lag({name}) OVER own AS from_{name}" for name in _CARRIED)
    return _BESIDE_LIVES.format(source=f"({starts}) u", carried=carried, **terms)


@relation(
    "skb_lifetimes",
    "an event of `packets`, with its packet",
    columns(
        "time_ns cpu point tid skb head flow len_bytes header_bytes seq tcp_flags ifindex netns from_point",
        "from_time_ns from_cpu packet life_flow life_ifindex life_netns",
    ),
    kind="view",
    needs=("skb_step_lifetimes", "loss_spans"),
    aliases=("lives",),
)
def _lifetimes(context: Context) -> str:
    retransmit = points(context.trace).get("tcp.retransmit", -1)
    returns = _returns_of(context.trace, "steps_once")
    return _LIVES.format(**_packet_terms(context.trace), returns=returns, retransmit=retransmit)


def previous_events(numbers: Mapping[str, int]) -> dict[str, str]:
    """Return queries for events of packets as they come, each with the time of the packet's event before it.

    They read the tables `packets` and `losses` of :mod:`hopscope.store.schema` of one host, and say the same as
    `skb_lifetimes` does of a whole trace. `packets` has one more column, `row`, which is the event's own.

    Parameters
    ----------
    numbers
        Name → number of each probe point.

    Returns
    -------
    dict
        Name of a view → its query, in the order in which they are to be made; `previous_events` has the columns row
        and from_time_ns, for each event that continues a packet.
    """
    step_points = {name: numbers.get(name, -1) for name in _NAMED}
    gaps = _GAPS.replace(f" UNION ALL {_MISSING}", "")
    beside = ", ".join(str(step_points[name]) for name in BESIDE)
    losses = {"clean": _CLEAN, "gaps": _WITH_GAPS}
    carried = ", row"
    driver = {"tx_start": step_points["tx.start"], "tx_driver": step_points["tx.driver"]}
    found = "SELECT row, from_time_ns FROM {} WHERE continues"
    return {
        "skb_transitions": _transitions_of(numbers),
        "loss_spans": gaps,
        "skb_steps": _STEPS.format(beside=beside, carried=carried, **losses),
        "driver_returns": _BESIDE.format(source="packets", carried=carried, **driver, **losses),
        "previous_events": f"{found.format('skb_steps')} UNION ALL {found.format('driver_returns')}",
    }


def _numbers(trace: Trace) -> dict[str, int]:
    return {name: points(trace).get(name, -1) for name in _NAMED}


def _driver_terms(trace: Trace) -> dict[str, Any]:
    number = _numbers(trace)
    return {"tx_start": number["tx.start"], "tx_driver": number["tx.driver"], **_loss_terms(trace)}


def _packet_terms(trace: Trace) -> dict[str, int]:
    return {"started_ns": trace.metadata.started_ns, "cpu_step": cpu_step(trace)}


def own_number(trace: Trace) -> str:
    """Return the expression for the number of a packet whose lifetime begins with an event."""
    return _OWN_NUMBER.format(**_packet_terms(trace))


def has_gaps(trace: Trace) -> bool:
    """Return whether events are known to be missing."""
    missing = _MISSING.format(**_ends(trace))
    return bool(trace.rows(f"SELECT 1 FROM losses WHERE lost > 0 UNION ALL SELECT 1 FROM ({missing}) m LIMIT 1"))


def _ends(trace: Trace) -> dict[str, int]:
    meta = trace.metadata
    return {"started_ns": meta.started_ns, "ended_ns": meta.started_ns if meta.ended_ns is None else meta.ended_ns}


def addresses(trace: Trace, query: str) -> str:
    """Return the condition that an skb's address is in a query, if it has few: lifetimes are expensive to compute."""
    found = trace.rows(f"{query} LIMIT {MOST_ADDRESSES + 1}")
    if len(found) > MOST_ADDRESSES:
        return "TRUE"
    if not found:
        return "FALSE"
    return f"skb IN ({', '.join(str(skb) for (skb,) in found)})"


def _loss_terms(trace: Trace) -> dict[str, str]:
    """Return the SQL with which a query does not continue lifetimes across a gap."""
    return {"clean": _CLEAN, "gaps": _WITH_GAPS} if has_gaps(trace) else {"clean": "TRUE", "gaps": ""}
