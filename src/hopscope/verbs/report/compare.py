# SPDX-License-Identifier: Apache-2.0
"""The report ``compare``: hops whose duration differs between two recordings, and how certain that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.rank_test import bucket_of_part, holm, rank_difference, share_difference
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.trace.gaps import lost_events
from hopscope.trace.hop_slices import hop_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import I64
    from hopscope.model.rank_test import Difference
    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.hop_slices import Hop
    from hopscope.trace.selection import Selection

# Number of time slices of a run, to determine its own variation.
SLICES: Final = 20
# Significance level (after Holm's correction).
SURE: Final = 0.01
# Smaller effects are not reported: a Cliff's delta below 0.147 is "negligible" (Romano et al., 2006), as is a change of
# the share beyond the first run's 99th percentile by less than doubling or halving.
LEAST_DELTA: Final = 0.147
LEAST_TAIL: Final = 0.01
LEAST_COUNT: Final = 20
_EVER_NS: Final = 1 << 62

COLUMNS: Final = (
    Column("hop", "text", "from point → to point", "hop"),
    Column(
        "verdict",
        "text",
        "slower, faster, longer tail, shorter tail or other shape; same: no relevant difference",
        "verdict",
    ),
    Column("p50_before_ns", "ns", "median in the first trace", "p50 A"),
    Column("p50_after_ns", "ns", "in the second", "p50 B"),
    Column("p50_ratio", "ratio", "the second by the first", "B/A", rank=3),
    Column("p99_before_ns", "ns", "99th percentile in the first trace", "p99 A"),
    Column("p99_after_ns", "ns", "in the second", "p99 B"),
    Column("p99_ratio", "ratio", "the second by the first", "B/A", rank=4),
    Column("mean_change_ns", "ns", "mean in the second trace minus mean in the first", "mean by", rank=2),
    Column("delta", "ratio", "Cliff's delta, from -1 (all faster) to 1 (all slower)", "delta", rank=1),
    Column("tail", "part", "fraction of the second trace beyond the 99th percentile of the first", "tail", rank=5),
    Column(
        "probability",
        "ratio",
        "probability of such a difference by chance (p), corrected for multiple tests",
        "p",
        rank=6,
    ),
    Column("before", "count", "in the first", "A", rank=7),
    Column("after", "count", "in the second", "B", rank=8),
)


def compare(before: Trace, after: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return a row per hop that both traces have, the greatest change first.

    Parameters
    ----------
    before, after
        The two recordings.
    selection
        The selected part of each.
    limit
        Maximum number of rows.
    """
    first, second = (_hops(trace, selection) for trace in (before, after))
    both = [name for name in first if name in second and _enough(first[name]) and _enough(second[name])]
    tests = [_tests(first[name].counts, second[name].counts) for name in both]
    sure = holm([each.probability for hop in tests for each in hop])
    rows = []
    for place, name in enumerate(both):
        own = sure[place * TESTS : (place + 1) * TESTS]
        rows.append(_row(name, first[name], second[name], tests[place], own))
    rows.sort(key=lambda row: (row[1] == SAME, -abs(_change(row))))
    shown = rows if limit is None else rows[:limit]
    changed = sum(row[1] != SAME for row in rows)
    notes = [*_only(first, second), *_lost(before, after)]
    heading = [_sentence(changed, len(rows)), ""] if rows else []
    if not rows:
        notes.insert(0, f"the traces have no hop in common with at least {LEAST_COUNT} packets or messages in each")
    return of_rows("compare", COLUMNS, shown, notes=notes, left_out=len(rows) - len(shown), heading=heading)


SAME: Final = "same"
TESTS: Final = 3


def _tests(before: I64, after: I64) -> tuple[Difference, Difference, Difference]:
    """Compare by ranks, by the share above the first's median, and by that above its 99th percentile."""
    return rank_difference(before, after), share_difference(before, after, 0.5), share_difference(before, after, 0.99)


def _verdict(tests: tuple[Difference, Difference, Difference], sure: Sequence[float]) -> str:
    rank, middle, tail = tests
    if sure[0] < SURE and abs(rank.effect) >= LEAST_DELTA:
        return "slower" if rank.effect > 0 else "faster"
    if sure[2] < SURE and tail.effect >= LEAST_TAIL:
        return "longer tail"
    if sure[2] < SURE and tail.effect <= -LEAST_TAIL / 2:
        return "shorter tail"
    if sure[1] < SURE and abs(middle.effect) >= LEAST_DELTA:
        return "other shape"
    return SAME


def _row(
    name: str, one: Hop, other: Hop, tests: tuple[Difference, Difference, Difference], sure: Sequence[float]
) -> list[Value]:
    before, after = one.histogram, other.histogram
    row: list[Value] = [name, _verdict(tests, sure)]
    for q in (50.0, 99.0):
        times = [before.percentile(q) or 0.0, after.percentile(q) or 0.0]
        row += [*times, round(times[1] / times[0], 2) if times[0] else None]
    beyond = int(after.counts[bucket_of_part(one.counts, 0.99) + 1 :].sum()) / after.count
    change = (after.mean_ns or 0.0) - (before.mean_ns or 0.0)
    return [
        *row,
        round(change),
        round(tests[0].effect, 3),
        beyond,
        float(f"{min(sure):.2g}"),
        before.count,
        after.count,
    ]


def _change(row: list[Value]) -> float:
    value = row[[column.name for column in COLUMNS].index("mean_change_ns")]
    return float(value) if isinstance(value, int | float) else 0.0


def _enough(hop: Hop) -> bool:
    return int(hop.counts.sum()) >= LEAST_COUNT


def _sentence(changed: int, hops: int) -> str:
    if not changed:
        return f"no significant difference in {plural(hops, 'hop')}"
    return (
        f"{changed} of {plural(hops, 'hop')} {'differs' if changed == 1 else 'differ'} significantly; "
        "sorted by the change of the mean"
    )


def _only(first: dict[str, Hop], second: dict[str, Hop]) -> list[str]:
    notes = []
    for name, one, other in (("first", first, second), ("second", second, first)):
        alone = [f"{hop} ({int(one[hop].counts.sum()):,})" for hop in one if hop not in other and _enough(one[hop])]
        if alone:
            notes.append(f"only in the {name} trace: {', '.join(alone)}")
    return notes


def _lost(before: Trace, after: Trace) -> list[str]:
    found = {"first": lost_events(before), "second": lost_events(after)}
    return [
        (f"the {name} trace lost {plural(lost, 'event')}: its durations are a sample")
        for name, lost in found.items()
        if lost
    ]


def _hops(trace: Trace, selection: Selection) -> dict[str, Hop]:
    """Return hop → its durations, in slices of the period with packets."""
    bounds = trace.rows("SELECT min(time_ns), max(time_ns) FROM packets")[0]
    from_ns, until_ns = bounds if bounds[0] is not None else (0, 1)
    width_ns = (until_ns - from_ns) // SLICES + 1
    inner = [from_ns + width_ns * each for each in range(1, SLICES)]
    return hop_slices(trace, selection, np.array([-_EVER_NS, *inner, _EVER_NS], np.int64))
