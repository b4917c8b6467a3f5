# SPDX-License-Identifier: Apache-2.0
"""What the reading thread did, and the server between request and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.cause import BY_NAME
from hopscope.model.system_calls import WAITS, call_name
from hopscope.term.format import part, time
from hopscope.trace.causes.table import ARRIVED, READ
from hopscope.trace.causes.threads import ASLEEP, READING, RUNNABLE, RUNNING, STOPPED, THROTTLED
from hopscope.verbs.explain.activity import NOTHING, activity
from hopscope.verbs.explain.suspects import (
    OF,
    Found,
    calls_advice,
    cgroup_of,
    greatest,
    machine_of,
    occupants,
    of_thread,
    pid_of,
    thread_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.activity import Activity


class Readers:
    """The threads that read the messages of the table ``explained``."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._did: dict[int, Activity] = {}

    def of(self, cause: str) -> tuple[int | None, str, Activity]:
        """Return the reader by which a cause held messages longest, its name, and what it did while they waited."""
        held = BY_NAME[cause].column
        rows = self.trace.rows(
            "SELECT tid, sum(held) FROM ("
            f" SELECT m.reader_tid AS tid, c.{held} AS held FROM {OF}"
            f" UNION ALL SELECT CAST(s.subject AS INTEGER), p.{held} FROM explained e JOIN pending_causes p"
            " ON p.message = e.message JOIN pending_spans s ON s.message = p.message AND s.part = p.part"
            " WHERE p.part = 'reader') both_kinds WHERE held > 0 AND tid IS NOT NULL"
            " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
        )
        tid = rows[0][0] if rows else None
        return tid, thread_name(self.trace, tid), NOTHING if tid is None else self._activity(tid)

    def _activity(self, tid: int) -> Activity:
        """Return what a reader did while messages waited for it; it may hold them by several causes."""
        if tid not in self._did:
            self._did[tid] = activity(
                self.trace,
                tid,
                f"SELECT {ARRIVED}, {READ} FROM explained e JOIN messages m ON m.message = e.message"
                f" WHERE reader_tid = {tid} AND {READ} > {ARRIVED} UNION ALL SELECT s.from_ns, s.until_ns FROM"
                " explained e JOIN pending_spans s ON s.message = e.message"
                f" WHERE s.part = 'reader' AND s.subject = {tid}",
            )
        return self._did[tid]


def asleep(readers: Readers, cause: str) -> Found:
    """Return in which call the reader slept, or who stopped it."""
    trace, (tid, name, did) = readers.trace, readers.of(cause)
    asleep, stopped = did.states.get(ASLEEP, 0), did.states.get(STOPPED, 0)
    if stopped > asleep:
        return Found(
            f"the reader {name} was stopped, by a signal or a debugger",
            name,
            (f"it was stopped for {time(stopped)} while messages waited",),
            advice=f"kill -CONT {pid_of(trace, tid)}",
        )
    if not did.calls:
        return Found(f"the reader {name} slept", name, confidence="medium", advice=calls_advice(trace, tid))
    call, share = greatest(did.calls)
    word = call_name(call, machine_of(trace)) if call >= 0 else ""
    if not word:
        return Found(
            f"the reader {name} slept",
            name,
            ("the system call in which it slept is not known",),
            "medium",
            calls_advice(trace, tid),
        )
    mostly = "" if share > 0.95 else f" for {part(share)} of that"
    if word in WAITS:
        sentence = f"the reader {name} slept in {word}(){mostly}: it did not wait for this socket"
    else:
        sentence = f"the reader {name} slept in {word}(){mostly}, not while waiting for this socket"
    longest = f"its longest sleep was {time(did.longest_ns[ASLEEP])}"
    return Found(sentence, name, (longest,), advice=calls_advice(trace, tid))


def runnable(readers: Readers, cause: str) -> Found:
    """Return who had the CPU that the reader wanted."""
    trace, (tid, name, did) = readers.trace, readers.of(cause)
    runnable, throttled = did.states.get(RUNNABLE, 0), did.states.get(THROTTLED, 0)
    waited = f"it was ready to run for {time(runnable + throttled)} while messages waited"
    if throttled > runnable:
        group = cgroup_of(trace, tid)
        return Found(
            f"the reader {name} was ready to run, but the CPU quota of its cgroup{group and ' ' + group} was used up",
            group or name,
            (waited, f"{time(throttled)} of that while it was throttled"),
            advice=f"raise cpu.max of {group}"
            if group
            else of_thread(trace, tid, "cat /proc/{pid}/cgroup; raise its cpu.max"),
        )
    other, most, sure = occupants(trace, did.others, runnable + throttled)
    if not other:
        return Found(
            f"the reader {name} was ready to run, but had no CPU",
            name,
            (waited, "what occupied the CPU was not seen; it may have been idle and waking up"),
            "medium",
        )
    occupant = pid_of(trace, greatest(did.others)[0])
    return Found(
        f"the reader {name} was ready to run, but {other} occupied the CPU",
        other,
        (waited, f"{'meanwhile on its CPU' if did.are_turns else 'on the CPU just before it'}: {most} of that time"),
        sure,
        of_thread(trace, tid, f"ps -o pid,ni,cls,psr,cgroup,comm -p {occupant},{{pid}}   (weights, CPUs, cgroups)"),
    )


def busy(state: str, what: str, did: str, advice: str) -> Callable[[Readers, str], Found]:
    """Return the finder of a cause by which the reader itself had the CPU.

    Parameters
    ----------
    state
        State of the thread that is the cause.
    what, did
        What it does, and did while messages waited, after its name.
    advice
        As of :class:`Found`; `{pid}` stands for its process.
    """

    def find(readers: Readers, cause: str) -> Found:
        tid, name, activity = readers.of(cause)
        return Found(
            f"the reader {name} {what}",
            name,
            (f"it {did} for {time(activity.states.get(state, 0))} while messages waited",),
            advice=of_thread(readers.trace, tid, advice),
        )

    return find


running = busy(
    RUNNING,
    "was running, but had not read the message yet",
    "ran",
    "sudo perf top -g -p {pid}   (what it computes)",
)
reading = busy(
    READING,
    "was copying data that came before: it receives as fast as it can",
    "copied",
    "sudo hopscope cpu -g process --breakdown -d 5   (copies and checksums)",
)


def application(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    """Return the server, and what it did."""
    rows = trace.rows(
        "SELECT server_tid, sum(answers_ns - asked_ns) FROM explained_exchanges WHERE server_tid IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    tid = rows[0][0] if rows else None
    if tid is None:
        return Found("the server needed that time to answer", confidence="medium")
    did = activity(
        trace,
        tid,
        f"SELECT asked_ns, answers_ns FROM explained_exchanges WHERE server_tid = {tid} AND answers_ns > asked_ns",
    )
    name = thread_name(trace, tid)
    if not did.states:
        return Found(f"the server {name} needed that time to answer", name, confidence="medium")
    state, share = greatest(did.states)
    how = {
        ASLEEP: "it slept",
        STOPPED: "it was stopped",
        RUNNABLE: "it was ready to run, but had no CPU",
        THROTTLED: "its cgroup had no CPU time left",
        RUNNING: "it was computing",
        READING: "it was copying what it received",
    }[state]
    if state == ASLEEP and did.calls and (call := greatest(did.calls)[0]) >= 0:
        how = f"it slept in {call_name(call, machine_of(trace))}()"
    advice = of_thread(trace, tid, "sudo perf top -g -p {pid}") if state == RUNNING else calls_advice(trace, tid)
    return Found(
        f"the server {name} needed that time between request and answer",
        name,
        (f"{how} for {part(share)} of that time",),
        advice=advice,
    )
