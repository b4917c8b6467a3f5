# SPDX-License-Identifier: Apache-2.0
"""What a thread did during the times that count: arrays of its changes of state, cut to these times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
        Thread that had the CPU → time for which this one wanted it, ns; 0: the idle task.
    longest_ns
        The longest time that it spent in one state, by state.
    """

    states: dict[str, int]
    calls: dict[int, int]
    others: dict[int, int]
    longest_ns: dict[str, int]


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
    from_ns, until_ns = union(*_pairs(trace, spans))
    rows = trace.columns(
        "SELECT time_ns, state, coalesce(other, -1) AS other, coalesce(call, -1) AS call FROM thread_states"
        f" WHERE subject = {tid} ORDER BY time_ns, place"
    )
    times = np.asarray(rows["time_ns"], np.int64)
    if not len(times) or not len(from_ns):
        return Activity({}, {}, {}, {})
    ends = np.append(times[1:], np.iinfo(np.int64).max)
    spent = within(from_ns, until_ns, ends) - within(from_ns, until_ns, times)
    states = np.asarray(rows["state"], object)
    # Who had the CPU is known when it gets it back.
    others = np.append(np.asarray(rows["other"], np.int64)[1:], -1)
    calls = np.asarray(rows["call"], np.int64)
    waits = (states == RUNNABLE) | (states == THROTTLED)
    return Activity(
        {state: int(spent[states == state].sum()) for state in STATES if spent[states == state].any()},
        _sums(calls[states == ASLEEP], spent[states == ASLEEP]),
        _sums(others[waits], spent[waits]),
        {state: int(spent[states == state].max(initial=0)) for state in STATES},
    )


def _pairs(trace: Trace, spans: str) -> tuple[I64, I64]:
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
