# SPDX-License-Identifier: Apache-2.0
"""What the reading thread did, and the server between request and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.cause import BY_NAME
from hopscope.model.system_calls import WAITS, call_name
from hopscope.term.format import part, time
from hopscope.trace.causes.table import ARRIVED, READ
from hopscope.trace.causes.threads import ASLEEP, READING, RUNNABLE, RUNNING, STOPPED, THROTTLED
from hopscope.verbs.explain.activity import activity
from hopscope.verbs.explain.suspects import (
    MOSTLY,
    OF,
    Found,
    calls_advice,
    cgroup_of,
    greatest,
    machine_of,
    pid_of,
    thread_name,
)

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.activity import Activity


def _reader(trace: Trace, cause: str) -> tuple[int | None, str, Activity]:
    """Return the reader that held messages longest, its name, and what it did while they waited."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT tid, sum(held) FROM ("
        f" SELECT m.reader_tid AS tid, c.{held} AS held FROM {OF}"
        f" UNION ALL SELECT CAST(s.subject AS INTEGER), p.{held} FROM explained e JOIN pending_causes p"
        " ON p.message = e.message JOIN pending_spans s ON s.message = p.message AND s.part = p.part"
        " WHERE p.part = 'reader') both_kinds WHERE held > 0 AND tid IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    tid = rows[0][0] if rows else None
    if tid is None:
        return None, thread_name(trace, None), activity(trace, -1, "SELECT 0, 0 LIMIT 0")
    spans = (
        f"SELECT {ARRIVED}, {READ} FROM explained e JOIN messages m ON m.message = e.message WHERE reader_tid = {tid}"
        f" AND {READ} > {ARRIVED} UNION ALL SELECT s.from_ns, s.until_ns FROM explained e"
        f" JOIN pending_spans s ON s.message = e.message WHERE s.part = 'reader' AND s.subject = {tid}"
    )
    return tid, thread_name(trace, tid), activity(trace, tid, spans)


def asleep(trace: Trace, cause: str) -> Found:
    """Return in which call the reader slept, or who stopped it."""
    tid, name, did = _reader(trace, cause)
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


def runnable(trace: Trace, cause: str) -> Found:
    """Return who had the CPU that the reader wanted."""
    tid, name, did = _reader(trace, cause)
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
            else f"cat /proc/{pid_of(trace, tid)}/cgroup; raise its cpu.max",
        )
    ran = {who: ns for who, ns in did.others.items() if who > 0}
    if not ran:
        return Found(
            f"the reader {name} was ready to run, but had no CPU",
            name,
            (waited, "what occupied the CPU was not seen; it may have been idle and waking up"),
            "medium",
        )
    who, share = greatest(did.others)
    group = cgroup_of(trace, who)
    other = thread_name(trace, who) + (f" in the cgroup {group}" if group else "")
    most = ", ".join(
        f"{thread_name(trace, each)} {part(ns / (runnable + throttled))}" for each, ns in list(did.others.items())[:3]
    )
    return Found(
        f"the reader {name} was ready to run, but {other} occupied the CPU",
        other,
        (waited, f"{'meanwhile on its CPU' if did.are_turns else 'on the CPU just before it'}: {most} of that time"),
        "high" if share > MOSTLY else "medium",
        f"ps -o pid,ni,cls,psr,cgroup,comm -p {pid_of(trace, who)},{pid_of(trace, tid)}   (weights, CPUs, cgroups)",
    )


def running(trace: Trace, cause: str) -> Found:
    """Return the reader that ran."""
    tid, name, did = _reader(trace, cause)
    return Found(
        f"the reader {name} was running, but had not read the message yet",
        name,
        (f"it ran for {time(did.states.get(RUNNING, 0))} while messages waited",),
        advice=f"sudo perf top -g -p {pid_of(trace, tid)}   (what it computes)",
    )


def reading(trace: Trace, cause: str) -> Found:
    """Return the reader that was busy receiving."""
    _, name, did = _reader(trace, cause)
    return Found(
        f"the reader {name} was copying data that came before: it receives as fast as it can",
        name,
        (f"it copied for {time(did.states.get(READING, 0))} while messages waited",),
        advice="sudo hopscope cpu -g process --breakdown -d 5   (copies and checksums)",
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
    advice = f"sudo perf top -g -p {pid_of(trace, tid)}" if state == RUNNING else calls_advice(trace, tid)
    return Found(
        f"the server {name} needed that time between request and answer",
        name,
        (f"{how} for {part(share)} of that time",),
        advice=advice,
    )
