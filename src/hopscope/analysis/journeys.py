# SPDX-License-Identifier: Apache-2.0
"""Packets' lives between hosts: whether each came from another host, and left for one.

Most lives either begin with the receiving driver and never come to a device to be sent, or come to one and its driver
once: these are known from the next event or two of the same life, and only the others are put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.analysis.host_numbers import host_of_cpu
from hopscope.analysis.lives import own_number
from hopscope.analysis.messages_segments import TCP, number
from hopscope.analysis.messages_udp import UDP
from hopscope.analysis.names import points
from hopscope.store.engine import last_known

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

# Of the view `steps`.
NEEDED: Final = "skb, point, time_ns, cpu, flow, seq, len_bytes, header_bytes, continues"

_WIRE: Final = f"SELECT flow FROM flows WHERE protocol IN ({TCP}, {UDP})"

# The events that matter, and those that begin a life, so that it is known where one ends.
_TURNS: Final = """
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
    FROM turns_of_lives WHERE ({_CAME_ONLY} OR {_LEFT_ONLY}) AND flow IN ({_WIRE})"""

_AT: Final = {point: f"CASE WHEN point = {{{point}}} THEN time_ns END" for point in ("queue", "start", "driver")}
_TOLD: Final = ", ".join(
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
                 max({_AT["start"]}) AS start_ns, {_TOLD}
          FROM turns_of_lives
          WHERE point IN ({{listed}}) AND NOT {_CAME_ONLY} AND NOT {_LEFT_ONLY} AND NOT coalesce({_ITS_START}, FALSE)
          GROUP BY packet) whole
    WHERE in_flow IN ({_WIRE}) OR out_flow IN ({_WIRE})"""


def make_journeys(trace: Trace, steps: str = "steps") -> None:
    """Make the table ``journeys``, a row a life; the views of :mod:`hopscope.analysis.lives` must be there.

    `steps` is the view of that name, or a table of :data:`NEEDED` of its columns.

    It has ``packet``, ``host``, ``came``, ``came_ns``, ``leaves``, ``left_ns``, ``started``: whether that is of
    tx.start, and ``seq``, ``flow`` and payload's ``len`` as it came (``in_``) and left (``out_``).
    """
    numbers = points(trace)
    at = {name.partition(".")[2]: number(numbers, name) for name in ("tx.queue", "tx.start", "rx.driver")}
    terms = {**at, "listed": ", ".join(map(str, at.values())), "steps": steps}
    trace.make_table(
        "turns_of_lives",
        _TURNS.format(
            needed=NEEDED, number=last_known(f"CASE WHEN NOT continues THEN {own_number(trace)} END"), **terms
        ),
    )
    trace.make_table("journeys", f"{_SIMPLE.format(**terms)} UNION ALL {_OTHERS.format(**terms)}")
    trace.drop("turns_of_lives")
