# SPDX-License-Identifier: Apache-2.0
"""The hops of packets and of messages in slices of the recording, as counts by bucket of duration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.trace.histogram_sql import slot
from hopscope.trace.messages.path import PACKET_COLUMNS, STEPS, latest
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from hopscope.model.histogram import I64
    from hopscope.store.trace import Trace
    from hopscope.trace.messages.path import Step
    from hopscope.trace.selection import Selection

TOTAL: Final = "message, in all"


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """A hop: counts by slice of time and bucket, and what the exact durations give."""

    counts: I64
    sum_ns: int
    max_ns: int

    @property
    def histogram(self) -> Histogram:
        """All slices together."""
        return Histogram(self.counts.sum(axis=0), self.sum_ns, self.max_ns)


def hop_slices(trace: Trace, selection: Selection, bounds_ns: I64) -> dict[str, Hop]:
    """Return hop → its durations: of packets from point to point, and of messages where packets provide no times.

    Parameters
    ----------
    trace, selection
        The trace, and the part of it to use.
    bounds_ns : ndarray of int64, shape (slices + 1,)
        Boundaries of the slices. A hop counts for the slice in which it ends, a message for the one in which it begins.
    """
    build(trace, "skb_steps", "messages", selection=selection)
    slices = len(bounds_ns) - 1
    parts = [_of_packets(trace, selection), *map(_of_messages, STEPS[1:])]
    parts.append(f"SELECT '{TOTAL}' AS hop, begins_ns AS at_ns, total_ns AS duration_ns FROM messages")
    rows = trace.rows(
        f"SELECT hop, slice, slot, count(*), CAST(sum(duration_ns) AS BIGINT), max(duration_ns) FROM ("
        f"SELECT hop, duration_ns, {slot('duration_ns')} AS slot, {_slice(bounds_ns, 0, slices)} AS slice"
        f" FROM ({' UNION ALL '.join(parts)}) h"
        f" WHERE duration_ns > 0 AND at_ns >= {bounds_ns[0]} AND at_ns < {bounds_ns[-1]}) sliced"
        " GROUP BY hop, slice, slot ORDER BY hop, slice, slot"
    )
    hops: dict[str, Hop] = {}
    for hop, time_slice, bucket, count, sum_ns, max_ns in rows:
        known = hops.get(hop) or Hop(np.zeros((slices, SLOTS), np.int64), 0, 0)
        known.counts[time_slice, bucket] += count
        hops[hop] = Hop(known.counts, known.sum_ns + sum_ns, max(known.max_ns, max_ns))
    return hops


def _slice(bounds_ns: I64, first: int, end: int) -> str:
    """Return the expression for the slice of `at_ns`, as a binary search, which is faster than a join."""
    if end - first == 1:
        return str(first)
    middle = (first + end) // 2
    below, above = _slice(bounds_ns, first, middle), _slice(bounds_ns, middle, end)
    return f"CASE WHEN at_ns < {bounds_ns[middle]} THEN {below} ELSE {above} END"


def _of_packets(trace: Trace, selection: Selection) -> str:
    return (
        "SELECT concat(f.name, ' → ', t.name) AS hop, s.time_ns AS at_ns, s.time_ns - s.from_time_ns AS duration_ns"
        " FROM skb_steps s JOIN points f ON f.point = s.from_point JOIN points t ON t.point = s.point"
        f" WHERE s.continues AND {selection.window(trace, 's.time_ns')}"
    )


def _of_messages(step: Step) -> str:
    """Return the query for the message stages that end at a point, unless both ends are points of packets."""
    names = [each.column for each in STEPS]
    before = STEPS[: names.index(step.column)]
    last = latest(tuple(each.column for each in before))
    cases = " ".join(
        f"WHEN {last} = {each.column} THEN '{each.title} → {step.title}'"
        for each in reversed(before)
        if step.column not in PACKET_COLUMNS or each.column not in PACKET_COLUMNS
    )
    return (
        f"SELECT CASE {cases} END AS hop, {step.column} AS at_ns, {step.column} - {last} AS duration_ns"
        f" FROM messages WHERE {step.column} IS NOT NULL AND CASE {cases} END IS NOT NULL"
    )
