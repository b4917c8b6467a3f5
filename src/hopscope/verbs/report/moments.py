# SPDX-License-Identifier: Apache-2.0
"""Intervals in which a hop was slower than usual, with the counters that increased, by reading of the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.counters.names import BY_SUBJECT, explained
from hopscope.model.histogram import Histogram
from hopscope.model.report import Column, Report, of_rows
from hopscope.trace.each_host import each_host
from hopscope.trace.gaps import loss_notes
from hopscope.trace.hop_slices import hop_slices
from hopscope.trace.recorded_counters import times
from hopscope.verbs.report.counters import netns_names, notes, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.histogram import I64
    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("at_ns", "at_ns", "beginning of the interval between two readings of the counters", "from"),
    Column("until_ns", "at_ns", "end of the interval", "until", rank=1),
    Column("what", "text", "hop that was slow, or counter that increased", "what"),
    Column("of", "text", "counter: its interface, CPU, queue or network namespace", "of"),
    Column("p99_ns", "ns", "hop: 99th percentile in the interval", "p99"),
    Column("usual_p99_ns", "ns", "hop: median of `p99_ns` over all intervals", "usual"),
    Column("count", "count", "in the interval, hop: number of packets; counter: its increase", "count"),
    Column("usual_count", "ratio", "counter: median increase over all intervals", "usual count", rank=2),
    Column("times", "ratio", "ratio to the usual value; missing where that is 0", "times"),
)

# A hop is slow if its 99th percentile exceeds its median over all intervals by this factor, with at least so many
# packets.
SLOW: Final = 2.0
LEAST_COUNT: Final = 20
# Shorter times do not matter.
LEAST_NS: Final = 50_000
# A counter stands out if its increase exceeds its median by this factor.
STANDS_OUT: Final = 3.0
# Above this, decimals are not significant.
_WHOLE: Final = 10
# Sign of `hopscope counters explain` → order of rows.
_TROUBLE: Final = {"loss": 2, "bad": 1}
_HOPS: Final = 5
_COUNTERS: Final = 8


def moments(trace: Trace, selection: Selection, *, limit: int | None = None) -> Report:
    """Return the intervals in which a hop was slow or a counter of losses increased, in chronological order.

    For each, up to five hops, the slowest first, and up to eight counters: signs of trouble first, then those that
    increased more than usual.

    Parameters
    ----------
    trace, selection
        The trace, and the hops to use; for counters, only the period applies.
    limit
        Maximum number of intervals, those with the greatest slowdown first.
    """
    rows: list[list[Value]] = []
    lacks: list[str] = []
    left_out = 0
    for host in each_host(trace):
        found, left, lacking = _moments(trace, selection, limit)
        at_host = f"@{host}" if host else ""
        rows += [[*row[:2], f"{row[2]}{at_host}", *row[3:]] for row in found]
        lacks += [f"{host}: {note}" if host else note for note in lacking]
        left_out += left
    rows.sort(key=lambda row: (row[0] or 0, row[1] or 0))
    return of_rows("moments", COLUMNS, rows, notes=[*loss_notes(trace), *lacks], left_out=left_out)


def _moments(trace: Trace, selection: Selection, limit: int | None) -> tuple[list[list[Value]], int, list[str]]:
    """Return the rows of one host, the number of omitted intervals, and sentences about missing data."""
    readings = times(trace)
    if len(readings) < 3:
        return [], 0, notes(trace) or [TOO_FEW]
    bounds_ns = np.array([began for began, _ in readings], np.int64)
    slow = _slow(trace, selection, bounds_ns)
    counted = _counted(trace, selection, bounds_ns)
    found = sorted({*slow, *(each for each, rows in counted.items() if rows[0][0] == _TROUBLE["loss"])})
    worst = sorted(found, key=lambda each: -max((row[0] for row in slow.get(each, ())), default=0.0))
    chosen = set(worst if limit is None else worst[:limit])
    rows = [
        row
        for each in found
        if each in chosen
        for row in _interval(bounds_ns - trace.metadata.started_ns, each, slow.get(each, []), counted.get(each, []))
    ]
    return rows, len(found) - len(chosen), []


TOO_FEW: Final = "the trace has too few readings of the counters to tell what is usual: at least three are needed"

# The slowdown in ns, and the rest of a row.
_Slow = tuple[float, str, float, float, int]
# The severity, the ratio to the usual value, and the rest of a row.
_Counted = tuple[int, float, str, str, int, float]


def _interval(at_ns: I64, each: int, slow: list[_Slow], counted: list[_Counted]) -> Iterator[list[Value]]:
    between = int(at_ns[each]), int(at_ns[each + 1])
    for _, hop, here_ns, usual_ns, count in slow[:_HOPS]:
        yield [*between, hop, None, here_ns, usual_ns, count, None, _times(here_ns / usual_ns)]
    for _, ratio, name, of, count, usual in counted[:_COUNTERS]:
        yield [*between, name, of or None, None, None, count, usual, _times(ratio) if np.isfinite(ratio) else None]


def _times(ratio: float) -> float:
    return float(f"{ratio:.3g}") if ratio < _WHOLE else round(float(f"{ratio:.3g}"))


def _slow(trace: Trace, selection: Selection, bounds_ns: I64) -> dict[int, list[_Slow]]:
    """Return interval → slow hops, slowest first."""
    found: dict[int, list[_Slow]] = {}
    for name, hop in hop_slices(trace, selection, bounds_ns).items():
        told = np.flatnonzero(hop.counts.sum(axis=1) >= LEAST_COUNT)
        p99s_ns = [_p99(hop.counts[each], hop.max_ns) for each in told]
        usual_ns = float(np.median(p99s_ns)) if len(told) else 0.0
        for each, here_ns in zip(told.tolist(), p99s_ns, strict=True):
            if here_ns >= LEAST_NS and here_ns >= SLOW * usual_ns:
                row = here_ns - usual_ns, name, here_ns, usual_ns, int(hop.counts[each].sum())
                found.setdefault(each, []).append(row)
    return {each: sorted(rows, reverse=True) for each, rows in found.items()}


def _p99(counts: I64, max_ns: int) -> float:
    """Return the 99th percentile of a part of a hop, within 9 %; `max_ns` is the maximum of the whole hop."""
    return Histogram(counts, 0, max_ns).percentile(99.0) or 0.0


def _counted(trace: Trace, selection: Selection, bounds_ns: I64) -> dict[int, list[_Counted]]:
    """Return interval → counters that stand out: signs of trouble first, then by ratio."""
    namespaces = netns_names(trace)
    found: dict[int, list[_Counted]] = {}
    for key, times_ns, by, _ in steps(trace, selection):
        intervals = np.searchsorted(bounds_ns, times_ns) - 1
        every = np.zeros(len(bounds_ns) - 1, np.int64)
        every[intervals] = by
        usual = float(np.median(every))
        known = explained(key)
        trouble = _TROUBLE.get(known.sign, 0) if known else 0
        name, subject = (key.subject, key.name) if key.source in BY_SUBJECT else (key.name, key.subject)
        of = " ".join(filter(None, (subject, namespaces.get(key.netns, str(key.netns)))))
        for each in np.flatnonzero(every):
            ratio = every[each] / usual if usual else np.inf
            if ratio >= STANDS_OUT:
                found.setdefault(int(each), []).append((trouble, float(ratio), name, of, int(every[each]), usual))
    return {each: sorted(rows, key=lambda row: (-row[0], -row[1], -row[4])) for each, rows in found.items()}
