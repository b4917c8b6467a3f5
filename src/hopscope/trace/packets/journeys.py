# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of packets on a host, with their arrival from and departure to other hosts.

Most lifetimes either begin with the receiving driver and never reach a sending device, or pass one such device and its
driver once: these are determined from the next one or two events of the lifetime, and only the others are assembled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.store.engine import last_known
from hopscope.trace.host_numbers import host_of_cpu
from hopscope.trace.messages.segments import TCP, number
from hopscope.trace.messages.udp import UDP
from hopscope.trace.names import points
from hopscope.trace.packets.skb_lifetimes import own_number
from hopscope.trace.relation import columns, fixed, relation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.trace.relation import Condition, Context

# Columns of `skb_steps`.
_NEEDED: Final = "skb, point, time_ns, cpu, flow, seq, len_bytes, header_bytes, continues"

_WIRE: Final = f"SELECT flow FROM flows WHERE protocol IN ({TCP}, {UDP})"

# The relevant events, and those that begin a lifetime, so that its end is known.
_EVENTS: Final = """
    SELECT point, time_ns, cpu, flow, seq, len_bytes - header_bytes AS payload, continues,
           {number} OVER upto AS packet,
           lag(point) OVER own AS before_point, coalesce(NOT lag(continues) OVER own, FALSE) AS after_begin,
           lead(point) OVER own AS next_point, lead(time_ns) OVER own AS next_ns,
           coalesce(lead(continues) OVER own, FALSE) AS goes_on,
           coalesce(lead(continues, 2) OVER own, FALSE) AS goes_on_after
    FROM (SELECT {needed} FROM {steps} WHERE point IN ({listed}) OR NOT continues) s
    WINDOW own AS (PARTITION BY skb ORDER BY time_ns),
           upto AS (PARTITION BY skb ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"""
_CAME_ONLY: Final = "(point = {driver} AND NOT continues AND NOT goes_on)"
_LEFT_ONLY: Final = (
    "(point = {queue} AND NOT continues AND (NOT goes_on OR (next_point = {start} AND NOT goes_on_after)))"
)
_ITS_START: Final = "(point = {start} AND continues AND NOT goes_on AND before_point = {queue} AND after_begin)"

_SIMPLE: Final = f"""
    SELECT packet, {host_of_cpu("cpu")} AS host, point = {{driver}} AS came,
           CASE WHEN point = {{driver}} THEN time_ns END AS came_ns, point = {{queue}} AS leaves,
           CASE WHEN point = {{queue}} THEN CASE WHEN goes_on THEN next_ns ELSE time_ns END END AS left_ns,
           point = {{queue}} AND goes_on AS started,
           {
    ", ".join(
        f"CASE WHEN point = {{{point}}} THEN {name} END AS {way}_{of}"
        for way, point in (("in", "driver"), ("out", "queue"))
        for name, of in (("seq", "seq"), ("flow", "flow"), ("payload", "len"))
    )
}
    FROM wire_events WHERE ({_CAME_ONLY} OR {_LEFT_ONLY}) AND flow IN ({_WIRE})"""

_AT: Final = {point: f"CASE WHEN point = {{{point}}} THEN time_ns END" for point in ("queue", "start", "driver")}
_SEEN: Final = ", ".join(
    f"{which}({name}, {_AT[point]}) AS {way}_{of}"
    for way, which, point in (("in", "min_by", "driver"), ("out", "max_by", "queue"))
    for name, of in (("seq", "seq"), ("flow", "flow"), ("payload", "len"))
)
_OTHERS: Final = f"""
    SELECT packet, {host_of_cpu("cpu")} AS host, coalesce(came_ns = begins_ns, FALSE) AS came, came_ns,
           coalesce(queue_ns > coalesce(last_driver_ns, 0), FALSE) AS leaves,
           coalesce(CASE WHEN start_ns >= queue_ns THEN start_ns END, queue_ns) AS left_ns,
           coalesce(start_ns >= queue_ns, FALSE) AS started, in_seq, in_flow, in_len, out_seq, out_flow, out_len
    FROM (SELECT packet, min(cpu) AS cpu, min(time_ns) AS begins_ns, min({_AT["driver"]}) AS came_ns,
                 max({_AT["driver"]}) AS last_driver_ns, max({_AT["queue"]}) AS queue_ns,
                 max({_AT["start"]}) AS start_ns, {_SEEN}
          FROM wire_events
          WHERE point IN ({{listed}}) AND NOT {_CAME_ONLY} AND NOT {_LEFT_ONLY} AND NOT coalesce({_ITS_START}, FALSE)
          GROUP BY packet) whole
    WHERE in_flow IN ({_WIRE}) OR out_flow IN ({_WIRE})"""


def _holds_steps(context: Context) -> bool:
    return bool(context["held"])


def _views_steps(context: Context) -> bool:
    return not context["held"]


STEPS_OR_HELD: Final[Mapping[str, Condition]] = {"skb_steps": _views_steps, "held_skb_steps": _holds_steps}
HELD: Final = "held"

fixed(
    "held_skb_steps",
    "an event on a packet's path, as in `skb_steps`, stored for repeated use",
    columns("skb point time_ns cpu flow seq len_bytes header_bytes continues broken from_point from_time_ns from_cpu"),
    f"SELECT {_NEEDED}, broken, from_point, from_time_ns, from_cpu FROM skb_steps",
    needs=("skb_steps",),
    temporary=True,
)


@relation(
    "wire_events",
    "an event at which a packet may arrive from or leave for another host, or at which a lifetime begins",
    columns(
        "point time_ns cpu flow seq payload continues packet before_point after_begin next_point next_ns goes_on",
        "goes_on_after",
        payload=("bytes", "length of the payload"),
        packet="number of the packet; NULL: it began before the recording",
    ),
    needs_if=STEPS_OR_HELD,
    parameters=(HELD,),
    temporary=True,
)
def _wire_events(context: Context) -> str:
    number = last_known(f"CASE WHEN NOT continues THEN {own_number(context.trace)} END")
    steps = "held_skb_steps" if context["held"] else "skb_steps"
    return _EVENTS.format(needed=_NEEDED, number=number, steps=steps, **_terms(context))


@relation(
    "host_visits",
    "a packet's lifetime on a host, with its arrival from and departure to other hosts",
    columns(
        "packet host came came_ns leaves left_ns started in_seq in_flow in_len out_seq out_flow out_len",
        host="number of the host (`hosts`)",
        came="whether it arrived from another host",
    ),
    needs=("wire_events",),
    temporary=True,
)
def _host_visits(context: Context) -> str:
    terms = _terms(context)
    return f"{_SIMPLE.format(**terms)} UNION ALL {_OTHERS.format(**terms)}"


def _terms(context: Context) -> dict[str, Any]:
    numbers = points(context.trace)
    at = {name.partition(".")[2]: number(numbers, name) for name in ("tx.queue", "tx.start", "rx.driver")}
    return {**at, "listed": ", ".join(map(str, at.values()))}
