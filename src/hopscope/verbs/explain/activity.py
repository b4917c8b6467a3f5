# SPDX-License-Identifier: Apache-2.0
"""What a thread did during the times that count: arrays of its changes of state, cut to these times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hopscope.trace.causes.threads import ASLEEP, RUNNABLE, STATES, THROTTLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

I64: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Activity:
    """What a thread did.

    Attributes
    ----------
    states
        State → time, ns.
    calls
        Number of the system call → time asleep in it, ns; -1: unknown.
    others
        Thread that had the CPU → time for which it had it while this one wanted it, ns; 0: the idle task.
    longest_ns
        The longest time that it spent in one state, by state.
    are_turns
        Whether `others` is so; if not, each wait was attributed to the thread that had the CPU at its end.
    """

    states: dict[str, int]
    calls: dict[int, int]
    others: dict[int, int]
    longest_ns: dict[str, int]
    are_turns: bool


NOTHING: Final = Activity({}, {}, {}, {}, are_turns=False)


def activity(trace: Trace, tid: int, spans: str) -> Activity:
    """Return what a thread did during spans.

    Parameters
    ----------
    trace
        With the relation ``thread_states``.
    tid
        The thread.
    spans
        Query for the spans: begin and end, ns. They may overlap.
    """
    from_ns, until_ns = union(*pairs(trace, spans))
    rows = trace.columns(
        "SELECT time_ns, state, coalesce(other, -1) AS other, coalesce(call, -1) AS call, cpu FROM thread_states"
        f" WHERE subject = {tid} ORDER BY time_ns, place"
    )
    times = np.asarray(rows["time_ns"], np.int64)
    if not len(times) or not len(from_ns):
        return NOTHING
    ends = np.append(times[1:], np.iinfo(np.int64).max)
    spent = within(from_ns, until_ns, ends) - within(from_ns, until_ns, times)
    states = np.asarray(rows["state"], object)
    calls = np.asarray(rows["call"], np.int64)
    waits = (states == RUNNABLE) | (states == THROTTLED)
    # Which CPU it wanted, and who had it just before, is known when it gets it.
    others, cpus = (np.append(np.asarray(rows[name], np.int64)[1:], -1) for name in ("other", "cpu"))
    ran = _turns(trace, times[waits], ends[waits], cpus[waits], (from_ns, until_ns))
    return Activity(
        {state: int(spent[states == state].sum()) for state in STATES if spent[states == state].any()},
        _sums(calls[states == ASLEEP], spent[states == ASLEEP]),
        ran or _sums(others[waits], spent[waits]),
        {state: int(spent[states == state].max(initial=0)) for state in STATES},
        are_turns=bool(ran),
    )


def _turns(trace: Trace, begins: I64, ends: I64, cpus: I64, spans: tuple[I64, I64]) -> dict[int, int]:
    """Return for how long each thread had the CPU that this one wanted during spans; empty: not recorded."""
    sums: dict[int, int] = {}
    for cpu in np.unique(cpus[cpus >= 0]).tolist():
        # A wait, cut to the spans: none of them overlap, as the thread waits once at a time.
        waited = cut(*spans, *union(begins[cpus == cpu], ends[cpus == cpu]))
        for other, time_ns in turns(trace, cpu, *waited).items():
            sums[other] = sums.get(other, 0) + time_ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def turns(trace: Trace, cpu: int, from_ns: I64, until_ns: I64) -> dict[int, int]:
    """Return for how long each thread had a CPU during spans, in order and without overlaps; empty: not recorded."""
    if not len(from_ns):
        return {}
    rows = trace.columns(
        "SELECT e.tid, e.time_ns - e.value AS from_ns, e.time_ns AS until_ns FROM cpu e JOIN points n"
        f" ON n.point = e.point AND n.name = 'sched.turn' WHERE e.cpu = {cpu} ORDER BY e.time_ns"
    )
    tids, begins, ends = (np.asarray(rows[name], np.int64) for name in ("tid", "from_ns", "until_ns"))
    return _sums(tids, within(from_ns, until_ns, ends) - within(from_ns, until_ns, begins))


def cut(from_ns: I64, until_ns: I64, begins: I64, ends: I64) -> tuple[I64, I64]:
    """Return what two sets of spans, each in order and without overlaps, have in common."""
    edges = np.unique(np.concatenate([from_ns, until_ns, begins, ends]))
    middle = edges[:-1] + np.diff(edges) // 2
    both = _covers(from_ns, until_ns, middle) & _covers(begins, ends, middle)
    return edges[:-1][both], edges[1:][both]


def _covers(from_ns: I64, until_ns: I64, at_ns: I64) -> NDArray[np.bool_]:
    if not len(from_ns):
        return np.zeros(len(at_ns), bool)
    place = np.searchsorted(from_ns, at_ns, side="right") - 1
    return (place >= 0) & (at_ns < until_ns[np.maximum(place, 0)])


def pairs(trace: Trace, spans: str) -> tuple[I64, I64]:
    """Return the begin and the end (ns) of the rows of a query for spans."""
    rows = trace.rows(spans)
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins, ends = zip(*rows, strict=True)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def union(from_ns: I64, until_ns: I64) -> tuple[I64, I64]:
    """Return the spans that cover the same time as these, without overlaps, in order."""
    if not len(from_ns):
        return from_ns, until_ns
    order = np.argsort(from_ns, kind="stable")
    begins, ends = from_ns[order], np.maximum.accumulate(until_ns[order])
    first = np.append(True, begins[1:] > ends[:-1])
    last = np.append(first[1:], True)
    return begins[first], ends[last]


def within(from_ns: I64, until_ns: I64, at_ns: I64) -> I64:
    """Return how much of disjoint spans lies before each of these times, ns."""
    lengths = np.append(0, np.cumsum(until_ns - from_ns))
    place = np.searchsorted(from_ns, at_ns, side="right")
    current = np.maximum(place - 1, 0)
    inside = np.where(place > 0, np.minimum(at_ns, until_ns[current]) - from_ns[current], 0)
    whole: I64 = lengths[current] + inside
    return np.where(place > 0, whole, 0)


def _sums(keys: I64, spent: I64) -> dict[int, int]:
    sums: dict[int, int] = {}
    for key in np.unique(keys).tolist():
        total = int(spent[keys == key].sum())
        if total:
            sums[key] = total
    return dict(sorted(sums.items(), key=lambda each: -each[1]))
