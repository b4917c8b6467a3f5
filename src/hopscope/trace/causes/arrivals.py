# SPDX-License-Identifier: Apache-2.0
"""What kept a packet after it had come, until the stack's core took it: GRO, or who was to take it did not run.

A CPU's receive softirq takes packets from its backlog queue and from devices; with threaded NAPI, a thread does. From
when it is pending, or the thread is woken up, until it runs, it holds all packets that wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.engine import last_known
from hopscope.trace.causes.clocks import clock, elapsed
from hopscope.trace.causes.threads import RUNNABLE, THROTTLED
from hopscope.trace.messages.segments import number
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

PENDING: Final = "pending"
# By number (include/linux/interrupt.h).
SOFTIRQS: Final = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
# Names of threads that poll a device.
_POLLERS: Final = "napi/%"
# Which part of the path waits for whom: until the driver has the packet (at a device that queues it, such as veth with
# GRO), and until the core has it.
_PARTS: Final = {
    "driver": ("rx.driver", "m.start_ns", "m.driver_ns"),
    "core": ("rx.core", "m.driver_ns", "m.core_ns"),
}
_SPANS: Final = columns(
    "message part subject from_ns until_ns",
    part="`driver`: until the driver handed the packet over; `core`: until the stack's core received it",
    subject="the CPU that took it, or the thread",
)


@relation(
    "softirq_changes",
    "the receive softirq of a CPU begins to be pending, or to run, if it was pending for 0.1 ms or more",
    columns(
        "subject time_ns place state other",
        subject="CPU",
        place="1: it is pending, 0: it runs",
        state="from then on: `pending`, or `none`",
        other="`none`: the number of the softirq that ran for most of that time; NULL: none",
    ),
)
def _softirq_changes(context: Context) -> str:
    point = number(points(context.trace), "softirq.wait")
    return f"""
        SELECT CAST(cpu AS BIGINT) AS subject, time_ns - value AS time_ns, 1 AS place, '{PENDING}' AS state,
               CAST(NULL AS INTEGER) AS other FROM cpu WHERE point = {point}
        UNION ALL SELECT CAST(cpu AS BIGINT), time_ns, 0, 'none', CASE WHEN extra > 0 THEN extra - 1 END
                  FROM cpu WHERE point = {point}"""


def _spans(context: Context, taker: str, condition: str) -> str:
    """Return the query for the spans in which messages waited for whoever took their packets."""
    numbers = points(context.trace)
    return " UNION ALL ".join(
        f"SELECT m.message, '{part}' AS part, min(CAST(p.{taker} AS BIGINT)) AS subject, {begin} AS from_ns,"
        f" {end} AS until_ns FROM messages m JOIN packets p ON p.time_ns = {end} AND p.point = {number(numbers, point)}"
        f" WHERE {end} > {begin} AND {condition} GROUP BY m.message, {begin}, {end}"
        for part, (point, begin, end) in _PARTS.items()
    )


@relation(
    "softirq_spans",
    "the part of a message's path in which it may have waited for the receive softirq",
    _SPANS,
    needs=("messages", "softirq_changes"),
)
def _softirq_spans(context: Context) -> str:
    spans = _spans(context, "cpu", "p.cpu IN (SELECT subject FROM softirq_changes)")
    # What passes a point while the softirq is pending was not taken by it: the CPU sends, say, with softirqs disabled.
    before = "(PARTITION BY subject ORDER BY until_ns, entry ROWS UNBOUNDED PRECEDING)"
    return f"""
        SELECT message, part, subject, from_ns, until_ns
        FROM (SELECT *, {last_known("state")} OVER {before} AS state_then
              FROM (SELECT *, CAST(NULL AS STRING) AS state, 1 AS entry FROM ({spans}) s
                    UNION ALL SELECT NULL, NULL, subject, NULL, time_ns, state, 0 FROM softirq_changes) both_kinds) t
        WHERE message IS NOT NULL AND coalesce(state_then, 'none') <> '{PENDING}'"""


@relation(
    "poller_spans",
    "the part of a message's path in which it may have waited for a thread that polls the device",
    _SPANS,
    needs=("messages", "thread_names"),
)
def _poller_spans(context: Context) -> str:
    return _spans(context, "tid", f"p.tid IN (SELECT tid FROM thread_names WHERE comm LIKE '{_POLLERS}')")


clock("softirq", "softirq_changes", (PENDING,), "CPU")
elapsed("softirq", "softirq_spans", (PENDING,), of="softirq")
elapsed("poller", "poller_spans", (RUNNABLE, THROTTLED), of="thread")
_WAITS: Final = f"""
    SELECT message, part, {PENDING}_ns AS waited_ns, 0 AS held_ns FROM softirq_elapsed
    UNION ALL SELECT message, part, {RUNNABLE}_ns + {THROTTLED}_ns, 0 FROM poller_elapsed"""


@relation(
    "arrival_waits",
    "a message that waited for the receive softirq, a thread that polls, or GRO",
    columns(
        "message driver_waits_ns core_waits_ns gro_ns",
        driver_waits_ns="time for the softirq or the thread, until the driver handed its packet over",
        core_waits_ns="the same from then on, until the stack's core received it",
        gro_ns="time in which GRO kept its packet",
    ),
    needs=("messages", "softirq_elapsed", "poller_elapsed"),
    temporary=True,
)
def _arrival_waits(context: Context) -> str:
    point = number(points(context.trace), "gro.hold")
    held = (
        "SELECT m.message, 'core' AS part, 0 AS waited_ns, least(max(e.value), m.core_ns - m.driver_ns) AS held_ns"
        f" FROM messages m JOIN cpu e ON e.point = {point} AND e.time_ns = m.core_ns WHERE m.core_ns > m.driver_ns"
        " GROUP BY m.message, m.core_ns, m.driver_ns"
    )
    waited = "CAST(sum(CASE WHEN part = '{}' THEN waited_ns ELSE 0 END) AS BIGINT)"
    return f"""
        SELECT message, {waited.format("driver")} AS driver_waits_ns, {waited.format("core")} AS core_waits_ns,
               CAST(sum(held_ns) AS BIGINT) AS gro_ns
        FROM ({_WAITS} UNION ALL {held}) w GROUP BY message"""
