# SPDX-License-Identifier: Apache-2.0
"""The report ``compare``: hops whose duration differs between two recordings, and how certain that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hopscope.model.rank_test import benjamini_hochberg, bucket_of_part, rank_difference, share_difference
from hopscope.model.report import Column, Report, of_rows
from hopscope.term import format as fmt
from hopscope.term.format import plural
from hopscope.trace.gaps import lost_events
from hopscope.trace.hop_slices import hop_slices
from hopscope.verbs.report.compare_settings import changed_settings

if TYPE_CHECKING:
    from hopscope.model.histogram import I64, Histogram
    from hopscope.model.rank_test import Difference
    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.hop_slices import Hop
    from hopscope.trace.selection import Selection

# Number of time slices of a run, to determine its own variation.
SLICES: Final = 20
# False discovery rate: the fraction of the hops that are reported as different that may be due to chance.
RATE: Final = 0.01
# Smaller effects are not reported: a Cliff's delta below 0.147 is "negligible" (Romano et al., 2006), as is a change of
# the share beyond the first run's 99th percentile by less than doubling or halving.
LEAST_DELTA: Final = 0.147
LEAST_TAIL: Final = 0.01
# From here on Cliff's delta is "large": what is not certain then is not called the same.
LARGE_DELTA: Final = 0.474
# Nor are smaller changes of the duration: of the mean, which is exact, or of a percentile, which is known to a bucket
# (9 %). Where all durations are in two neighbouring buckets, a change of 1 ns may have a delta of 1.
LEAST_MEAN: Final = 0.05
LEAST_PERCENTILE: Final = 0.2
LEAST_COUNT: Final = 20
_EVER_NS: Final = 1 << 62

COLUMNS: Final = (
    Column("hop", "text", "from point → to point", "hop"),
    Column(
        "verdict",
        "text",
        "slower, faster, longer tail, shorter tail or other shape; unclear: a large effect, but too few independent"
        " values to tell it from chance; same: no relevant difference",
        "verdict",
    ),
    Column("delta", "ratio", "effect size: Cliff's delta, from -1 (all faster) to 1 (all slower)", "effect"),
    Column("mean_change_ns", "ns", "mean in the second trace minus mean in the first", "mean by", rank=1),
    Column("p50_before_ns", "ns", "median in the first trace", "p50 A"),
    Column("p50_after_ns", "ns", "in the second", "p50 B"),
    Column("p50_ratio", "ratio", "the second by the first", "B/A", rank=3),
    Column("p99_before_ns", "ns", "99th percentile in the first trace", "p99 A"),
    Column("p99_after_ns", "ns", "in the second", "p99 B"),
    Column("p99_ratio", "ratio", "the second by the first", "B/A", rank=4),
    Column("tail", "part", "fraction of the second trace beyond the 99th percentile of the first", "tail", rank=5),
    Column(
        "false_discovery_rate",
        "ratio",
        "least false discovery rate at which the hop counts as different (Benjamini-Hochberg over the hops)",
        "FDR",
        rank=6,
    ),
    Column("before", "count", "in the first", "A", rank=7),
    Column("after", "count", "in the second", "B", rank=8),
)


def compare(
    before: Trace, after: Trace, selection: Selection, *, second: Selection | None = None, limit: int | None = None
) -> Report:
    """Return a row per hop that both traces have, those that differ first, the largest effect first.

    Parameters
    ----------
    before, after
        The two recordings.
    selection
        The selected part of each.
    second
        That of the second, where it is another one: two periods of one recording are compared so.
    limit
        Maximum number of rows.
    """
    one, other = _hops(before, selection), _hops(after, second or selection)
    both = [name for name in one if name in other and _enough(one[name]) and _enough(other[name])]
    tests = [_tests(one[name].counts, other[name].counts) for name in both]
    rates = benjamini_hochberg([min(map(_corrected, hop)) for hop in tests])
    rows = [
        _row(name, one[name], other[name], found, rate) for name, found, rate in zip(both, tests, rates, strict=True)
    ]
    rows.sort(
        key=lambda row: (_LAST.get(str(row[1]), 0), -abs(_number(row, "delta")), -abs(_number(row, "mean_change_ns")))
    )
    shown = rows if limit is None else rows[:limit]
    notes = [*_only(one, other), *changed_settings(before, after), *_lost(before, after)]
    heading = [*_sentences(rows), ""] if rows else []
    if not rows:
        notes.insert(0, f"the traces have no hop in common with at least {LEAST_COUNT} packets or messages in each")
    return of_rows("compare", COLUMNS, shown, notes=notes, left_out=len(rows) - len(shown), heading=heading)


SAME: Final = "same"
UNCLEAR: Final = "unclear"
_LAST: Final = {UNCLEAR: 1, SAME: 2}
Tests: TypeAlias = "tuple[Difference, Difference, Difference]"
_TESTS: Final = 3


def _tests(before: I64, after: I64) -> Tests:
    """Compare by ranks, by the share above the first's median, and by that above its 99th percentile."""
    return rank_difference(before, after), share_difference(before, after, 0.5), share_difference(before, after, 0.99)


def _corrected(test: Difference) -> float:
    """Return the probability of one of the tests of a hop, corrected for their number (Bonferroni)."""
    return min(1.0, test.probability * _TESTS)


def _verdict(tests: Tests, rate: float, before: Histogram, after: Histogram) -> str:
    rank, middle, tail = ((0.0 if _corrected(test) > RATE else test.effect) for test in tests)
    moved = _moved(before.mean_ns, after.mean_ns, LEAST_MEAN) or _percentile_moved(before, after, 50.0)
    if rate > RATE:
        return UNCLEAR if abs(tests[0].effect) >= LARGE_DELTA and moved else SAME
    if abs(rank) >= LEAST_DELTA and moved:
        return "slower" if rank > 0 else "faster"
    if not -LEAST_TAIL / 2 < tail < LEAST_TAIL and _percentile_moved(before, after, 99.0):
        return "longer tail" if tail > 0 else "shorter tail"
    return "other shape" if abs(middle) >= LEAST_DELTA and moved else SAME


def _percentile_moved(before: Histogram, after: Histogram, q: float) -> bool:
    return _moved(before.percentile(q), after.percentile(q), LEAST_PERCENTILE)


def _moved(before_ns: float | None, after_ns: float | None, least: float) -> bool:
    """Return whether a duration changed by at least a fraction."""
    return abs((after_ns or 0.0) - (before_ns or 0.0)) >= least * (before_ns or 0.0)


def _row(name: str, one: Hop, other: Hop, tests: Tests, rate: float) -> list[Value]:
    before, after = one.histogram, other.histogram
    change = (after.mean_ns or 0.0) - (before.mean_ns or 0.0)
    row: list[Value] = [name, _verdict(tests, rate, before, after), round(tests[0].effect, 3), round(change)]
    for q in (50.0, 99.0):
        times = [before.percentile(q) or 0.0, after.percentile(q) or 0.0]
        row += [*times, round(times[1] / times[0], 2) if times[0] else None]
    beyond = int(after.counts[bucket_of_part(one.counts, 0.99) + 1 :].sum()) / after.count
    return [*row, beyond, float(f"{rate:.2g}"), before.count, after.count]


def _number(row: list[Value], column: str) -> float:
    value = row[[each.name for each in COLUMNS].index(column)]
    return float(value) if isinstance(value, int | float) else 0.0


def _enough(hop: Hop) -> bool:
    return int(hop.counts.sum()) >= LEAST_COUNT


def _sentences(rows: list[list[Value]]) -> list[str]:
    """Return what was found, the largest effect, and how certain that is; the rows are sorted."""
    unclear = sum(row[1] == UNCLEAR for row in rows)
    different = sum(row[1] != SAME for row in rows) - unclear
    certain = f"false discovery rate {RATE:.0%}"
    more = [f"{plural(unclear, 'hop')} may differ by much: record longer to tell that from chance"] if unclear else []
    if not different:
        compared = f"{plural(len(rows), 'hop')} compared ({certain}; smaller effects are not reported)"
        return [f"no hop differs{' for certain' if unclear else ''}: {compared}", *more]
    hop, verdict, effect, change_ns = rows[0][:4]
    return [
        f"{different} of {plural(len(rows), 'hop')} {'differs' if different == 1 else 'differ'} ({certain})",
        f"largest effect: {hop}, {verdict}, effect size {effect}, mean {_signed(change_ns)}",
        *more,
    ]


def _signed(change_ns: Value) -> str:
    change = float(change_ns or 0)
    return f"{'-' if change < 0 else '+'}{fmt.time(abs(change))}"


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
    bounds = trace.rows(f"SELECT min(time_ns), max(time_ns) FROM packets WHERE {selection.window(trace)}")[0]
    from_ns, until_ns = bounds if bounds[0] is not None else (0, 1)
    width_ns = (until_ns - from_ns) // SLICES + 1
    inner = [from_ns + width_ns * each for each in range(1, SLICES)]
    return hop_slices(trace, selection, np.array([-_EVER_NS, *inner, _EVER_NS], np.int64))
