# SPDX-License-Identifier: Apache-2.0
"""What threads did: running, wanting a CPU, or sleeping, from the scheduler's events.

The scheduler's events are recorded of threads that use sockets, from their first use on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopSwitchExtra
from hopscope.store.engine import last_known
from hopscope.trace.causes.clocks import clock
from hopscope.trace.messages.segments import number
from hopscope.trace.names import points
from hopscope.trace.relation import columns, relation

if TYPE_CHECKING:
    from hopscope.trace.relation import Context

ASLEEP: Final = "asleep"
STOPPED: Final = "stopped"
RUNNABLE: Final = "runnable"
THROTTLED: Final = "throttled"
RUNNING: Final = "running"
READING: Final = "reading"
STATES: Final = (ASLEEP, STOPPED, RUNNABLE, THROTTLED, RUNNING, READING)
# Cause → the states of a reader that are it.
CAUSES: Final = {
    "reader-asleep": (ASLEEP, STOPPED),
    "reader-runnable": (RUNNABLE, THROTTLED),
    "reader-running": (RUNNING,),
    "earlier-data": (READING,),
}

ENDED: Final = "ended"
UNCLEAR: Final = "unclear"
# Of a thread that leaves its CPU for good, the least; and TASK_STOPPED, the lesser of two (include/linux/sched.h).
_ENDED: Final = 16
_STOPPED: Final = 4
_THROTTLED: Final = int(HopSwitchExtra.HOP_SWITCH_THROTTLED)
_CALL: Final = int(HopSwitchExtra.HOP_SWITCH_CALL) + 1
# Two of the same time: what happens to a thread comes before what it does.
_WOKEN, _IN, _OUT, _CALLS, _COPIES, _RETURNS = range(6)


@relation(
    "thread_events",
    "a thread is woken, gets a CPU, leaves it, or is in a call on a socket",
    columns(
        "subject time_ns place other value extra cpu",
        subject="number of the thread",
        place="0: woken, 1: gets a CPU, 2: leaves it, 3: in a call for the first time, 4: begins to copy what it "
        "receives, 5: has received it",
        other="the thread that has the CPU before (1) or after (2); NULL: another event",
        value="2: its state, 0: it would like to go on",
        extra="2: bits of `hop_switch_extra`",
        cpu="CPU",
    ),
    temporary=True,
)
def _thread_events(context: Context) -> str:
    numbers = points(context.trace)
    wake, switch, copy, received = (
        number(numbers, name) for name in ("sched.wake", "sched.switch", "rx.copy", "rx.received")
    )
    calls = ", ".join(
        str(number(numbers, name)) for name in ("tx.send", "tx.sent", "rx.read", "rx.received", "call.enter")
    )
    return f"""
        SELECT subject, time_ns, {_WOKEN} AS place, CAST(NULL AS BIGINT) AS other, CAST(0 AS BIGINT) AS value,
               CAST(0 AS INTEGER) AS extra, cpu FROM cpu WHERE point = {wake} AND subject <> 0
        UNION ALL SELECT subject, time_ns, {_IN}, CAST(tid AS BIGINT), 0, 0, cpu
                  FROM cpu WHERE point = {switch} AND subject <> 0
        UNION ALL SELECT CAST(tid AS BIGINT), time_ns, {_OUT}, subject, value, extra, cpu
                  FROM cpu WHERE point = {switch} AND tid <> 0
        UNION ALL SELECT CAST(tid AS BIGINT), min(time_ns), {_CALLS}, NULL, 0, 0, min(cpu)
                  FROM sockets WHERE point IN ({calls}) AND tid <> 0 GROUP BY tid
        UNION ALL SELECT subject, time_ns, place, NULL, 0, 0, cpu
                  FROM (SELECT *, lag(place) OVER (PARTITION BY subject ORDER BY time_ns, place) AS last_place
                        FROM (SELECT CAST(tid AS BIGINT) AS subject, time_ns, {_COPIES} AS place, cpu
                              FROM packets WHERE point = {copy} AND tid <> 0
                              UNION ALL SELECT CAST(tid AS BIGINT), time_ns, {_RETURNS}, cpu
                                        FROM sockets WHERE point = {received} AND tid <> 0) parts) reads
                  WHERE place <> coalesce(last_place, {_RETURNS})"""


@relation(
    "thread_states",
    "a change of what a thread does",
    columns(
        "subject time_ns place state other call cpu",
        subject="number of the thread",
        place="order of what has the same time",
        state="`asleep`, `stopped` (by a signal, or a debugger), `runnable` (it wants a CPU), "
        "`throttled` (its cgroup's quota of CPU time is used up), `running`, `reading` (it runs, and copies what it "
        "receives), `ended`, or `unclear` (events are missing)",
        other="`running`: the thread that had the CPU before; otherwise the one that got it; NULL: not seen",
        call="`asleep`: number of the system call in which it sleeps; NULL: unknown",
        cpu="CPU",
    ),
    needs=("thread_events",),
)
def _thread_states(context: Context) -> str:  # noqa: ARG001 # a relation's query has it
    before = "(PARTITION BY subject ORDER BY time_ns, place ROWS UNBOUNDED PRECEDING)"
    after = "(PARTITION BY subject ORDER BY time_ns DESC, place DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    reads = f"CASE WHEN place >= {_COPIES} THEN place END"
    moves = f"CASE WHEN place <> {_WOKEN} THEN place END"
    out = (
        f"CASE WHEN value % 256 = 0 THEN CASE WHEN extra >= {_THROTTLED} THEN '{THROTTLED}' ELSE '{RUNNABLE}' END"
        f" WHEN value % 256 >= {_ENDED} THEN '{ENDED}' WHEN value % {_ENDED} >= {_STOPPED} THEN '{STOPPED}'"
        f" ELSE '{ASLEEP}' END"
    )
    # A thread that is woken before it has left its CPU goes on running. What happens twice in a row has an event
    # missing in between.
    runs = f"CASE WHEN reads = {_COPIES} THEN '{READING}' ELSE '{RUNNING}' END"
    woken = (
        f"CASE WHEN coalesce(next_place, CASE WHEN last_place = {_OUT} THEN {_IN} ELSE {_OUT} END) <> {_IN}"
        f" THEN CASE WHEN last_place = {_OUT} THEN '{UNCLEAR}' ELSE {runs} END"
        f" WHEN last_place = {_OUT} AND last_state IN ('{RUNNABLE}', '{THROTTLED}') THEN last_state"
        f" ELSE '{RUNNABLE}' END"
    )
    state = (
        f"CASE WHEN place = {_WOKEN} THEN {woken}"
        f" WHEN place = {_OUT} THEN CASE WHEN next_place <> {_IN} THEN '{UNCLEAR}' ELSE {out} END"
        f" WHEN next_place = {_IN} THEN '{UNCLEAR}' ELSE {runs} END"
    )
    return f"""
        SELECT subject, time_ns, place, {state} AS state, other,
               CASE WHEN place = {_OUT} AND extra % {_CALL} > 0 THEN extra % {_CALL} - 1 END AS call, cpu
        FROM (SELECT *, {last_known(moves)} OVER {before} AS last_place,
                     {last_known(f"CASE WHEN place = {_OUT} THEN {out} END")} OVER {before} AS last_state,
                     {last_known(moves)} OVER {after} AS next_place, {last_known(reads)} OVER {before} AS reads
              FROM thread_events) e"""


clock("thread", "thread_states", STATES, "number of the thread")
