# SPDX-License-Identifier: Apache-2.0
"""Who kept the receive softirq, or a thread that polls, from running, and where GRO waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.cause import BY_NAME
from hopscope.term.format import plural, time
from hopscope.trace.causes.arrivals import PENDING, SOFTIRQS
from hopscope.trace.causes.threads import RUNNABLE, THROTTLED
from hopscope.trace.host_numbers import CPUS
from hopscope.verbs.explain.activity import activity, cut, pairs, turns, union
from hopscope.verbs.explain.suspects import MOSTLY, OF, Found, greatest, occupants, of_thread, on_host, thread_name

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.verbs.explain.activity import I64

_ADVICE: Final = "cat /proc/irq/*/smp_affinity_list /sys/class/net/*/queues/rx-*/rps_cpus   (which CPUs receive)"


def late(trace: Trace, cause: str) -> Found:  # noqa: ARG001 # as all of them
    """Return who had the CPU on which the receive softirq, or a thread that polls, should have run."""
    waited = " UNION ALL ".join(
        f"SELECT '{kind}' AS kind, s.subject, {sql} AS waited_ns FROM explained e JOIN {kind}_spans s"
        f" ON s.message = e.message JOIN {kind}_elapsed w ON w.message = s.message AND w.part = s.part"
        for kind, sql in (("softirq", f"{PENDING}_ns"), ("poller", f"{RUNNABLE}_ns + {THROTTLED}_ns"))
    )
    (kind, subject, _), *_ = trace.rows(
        f"SELECT kind, subject, sum(waited_ns) FROM ({waited}) w GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 1"
    )
    spans = (
        f"SELECT s.from_ns, s.until_ns FROM explained e JOIN {kind}_spans s ON s.message = e.message"
        f" WHERE s.subject = {subject}"
    )
    return _late_softirq(trace, subject, spans) if kind == "softirq" else _late_thread(trace, subject, spans)


def _late_thread(trace: Trace, tid: int, spans: str) -> Found:
    did = activity(trace, tid, spans)
    name = thread_name(trace, tid)
    what = f"the thread {name}, which polls the device, was ready to run, but"
    waited_ns = did.states.get(RUNNABLE, 0) + did.states.get(THROTTLED, 0)
    waited = f"it was ready to run for {time(waited_ns)} while messages waited"
    who, most, sure = occupants(trace, did.others, waited_ns)
    if not who:
        return Found(f"{what} had no CPU", name, (waited, "who had the CPU was not seen"), "medium")
    return Found(
        f"{what} {who} occupied the CPU",
        who,
        (waited, f"meanwhile on its CPU: {most} of that time"),
        sure,
        of_thread(trace, tid, "chrt -p {tid}; taskset -p {tid}   (its policy and its CPUs)"),
    )


def _late_softirq(trace: Trace, cpu: int, spans: str) -> Found:
    messages = union(*pairs(trace, spans))
    waits = (
        "SELECT began_ns, time_ns FROM (SELECT *, lag(time_ns) OVER (ORDER BY time_ns, place) AS began_ns"
        f" FROM softirq_changes WHERE subject = {cpu}) c WHERE state <> '{PENDING}' AND {{}}"
    )
    waited = cut(*messages, *union(*pairs(trace, waits.format("TRUE"))))
    ((name,),) = trace.rows(f"SELECT name FROM cpu_names WHERE cpu = {cpu}")
    what = f"the receive softirq of CPU {name} was pending, but did not run"
    late = f"it was pending for {time(_length(waited))} while messages waited"
    others = {
        number: _length(cut(*messages, *union(*pairs(trace, waits.format(f"other = {number}")))))
        for (number,) in trace.rows(f"SELECT DISTINCT other FROM softirq_changes WHERE subject = {cpu}")
        if number is not None
    }
    if sum(others.values()) > MOSTLY * _length(waited):
        softirq = f"the softirq {SOFTIRQS[greatest(others)[0]]}"
        advice = on_host(trace, cpu // CPUS, f"sudo perf top -g -C {cpu % CPUS}   (what it does)")
        return Found(f"{what}: {softirq} ran meanwhile", softirq, (late,), advice=advice)
    who, most, sure = occupants(trace, turns(trace, cpu, *waited), _length(waited))
    if not who:
        return Found(what, f"CPU {name}", (late, "who had the CPU was not seen"), "medium", _ADVICE)
    return Found(
        f"{what}: {who} had the CPU, with softirqs disabled, or before ksoftirqd",
        who,
        (late, f"meanwhile on that CPU: {most} of that time"),
        sure,
        _ADVICE,
    )


def _length(spans: tuple[I64, I64]) -> int:
    return int((spans[1] - spans[0]).sum())


def gathering(trace: Trace, cause: str) -> Found:
    """Return the device whose packets GRO kept."""
    held = BY_NAME[cause].column
    rows = trace.rows(
        "SELECT min(d.name), count(*), max(e.value) FROM cpu e"
        " JOIN points n ON n.point = e.point AND n.name = 'gro.hold'"
        f" JOIN (SELECT DISTINCT m.core_ns FROM {OF} WHERE c.{held} > 0) h ON h.core_ns = e.time_ns"
        " LEFT JOIN device_names d ON d.ifindex = e.ifindex AND d.netns = e.netns"
        " GROUP BY e.ifindex, e.netns ORDER BY sum(e.value) DESC LIMIT 1"
    )
    device, count, most_ns = rows[0]
    on = f" on {device}" if device else ""
    return Found(
        f"generic receive offload{on} kept packets, to merge them with later ones",
        device or "GRO",
        (f"{plural(int(count), 'packet')}, for {time(int(most_ns))} at most",),
        advice=f"cat /sys/class/net/{device or '*'}/gro_flush_timeout   (in its network namespace)",
    )
