# SPDX-License-Identifier: Apache-2.0
"""Base-2 exponential histograms of durations, as the kernel side fills them.

Scale 3 (eight buckets a doubling), bounds in seconds, upper bound inclusive: a Prometheus native histogram
of schema 3 and, with its index minus one, an OpenTelemetry exponential histogram of scale 3. Such
histograms merge and downscale without loss.

Slots of the count array::

    0           value <= 2**-24 s (59.6 ns): the zero bucket
    1 .. 256    bucket index i = slot - 192:  2**((i - 1) / 8) s < value <= 2**(i / 8) s
    257         value > 256 s

``python -m hopscope.model.histogram --c-table`` prints the table that the kernel side computes slots with.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

I64: TypeAlias = npt.NDArray[np.int64]
F64: TypeAlias = npt.NDArray[np.float64]

SCALE: Final = 3
SLOTS: Final = 258
MIN_INDEX: Final = -191
MAX_INDEX: Final = 64
MIN_SCALE: Final = -2
ZERO_SLOT: Final = 0
OVERFLOW_SLOT: Final = SLOTS - 1
INDEX_TO_SLOT: Final = 1 - MIN_INDEX
CELLS: Final = 16
U64_MAX: Final = 2**64 - 1

_PER_OCTAVE = 2**SCALE
_CELL_SHIFT = 59
_TOP_BIT = 63
_NS_PER_S = 10**9


def _bound_ns(index: int) -> int:
    """Return floor(1e9 * 2**(index / 8)) exactly, as the eighth root of an integer."""
    radicand = _NS_PER_S**_PER_OCTAVE
    radicand = radicand << index if index >= 0 else radicand >> -index
    return isqrt(isqrt(isqrt(radicand)))


@cache
def thresholds_ns() -> tuple[int, ...]:
    """Return the largest whole nanosecond of each slot but the last, ascending, 257 of them."""
    return tuple(_bound_ns(index) for index in range(MIN_INDEX - 1, MAX_INDEX + 1))


def bucket_of(value_ns: int) -> int:
    """Return the slot (0..257) of a duration by exact integer arithmetic: the reference for all other code."""
    return bisect_left(thresholds_ns(), value_ns)


@cache
def upper_bounds_s() -> F64:
    """Return the inclusive upper bound of each slot in seconds, float64 of shape (258,), the last infinite."""
    bounds = np.exp2(np.arange(MIN_INDEX - 1, MAX_INDEX + 2) / _PER_OCTAVE)
    bounds[OVERFLOW_SLOT] = np.inf
    bounds.flags.writeable = False
    return bounds


@cache
def lower_bounds_s() -> F64:
    """Return the exclusive lower bound of each slot in seconds, float64 of shape (258,).

    The first is 0 and belongs to its slot: a duration of 0 is in the zero bucket.
    """
    bounds = np.concatenate(([0.0], upper_bounds_s()[:-1]))
    bounds.flags.writeable = False
    return bounds


class Cell(NamedTuple):
    """A sixteenth of an octave: where its bucket bound lies, and the slot below that bound for values of [1, 2) ns."""

    threshold: int
    base: int


@cache
def threshold_mantissas() -> tuple[Cell, ...]:
    """Return the 16 cells by which a slot is computed without division or floating point.

    A value's mantissa is the value shifted until its leading one is bit 63. The four bits after it name a cell.
    Bounds are a factor of 2**(1/8) apart, which is wider than a cell, so that a cell holds one bound at most;
    a cell without one has U64_MAX, which no mantissa exceeds.
    """
    return tuple(_cell(number) for number in range(CELLS))


def _cell(number: int) -> Cell:
    first = (CELLS + number) << _CELL_SHIFT
    last = first + (1 << _CELL_SHIFT) - 1
    index = MAX_INDEX
    while _bound_ns(index) < first:  # mantissas are durations of 2**63 ns and more: the same bounds, octaves higher
        index += 1
    bound = _bound_ns(index)
    return Cell(bound if bound <= last else U64_MAX, index + INDEX_TO_SLOT - _PER_OCTAVE * _TOP_BIT)


def slot_of(value_ns: int) -> int:
    """Return the slot (0..257) of an unsigned 64-bit duration, step by step as the kernel side does."""
    if value_ns == 0:
        return ZERO_SLOT
    msb = value_ns.bit_length() - 1
    mantissa = value_ns << (_TOP_BIT - msb)
    threshold, base = threshold_mantissas()[(mantissa >> _CELL_SHIFT) & (CELLS - 1)]
    slot = _PER_OCTAVE * msb + base + (mantissa > threshold)
    return min(max(slot, ZERO_SLOT), OVERFLOW_SLOT)


def c_table() -> str:
    """Return the text of the kernel side's header with the table of `threshold_mantissas`."""
    cells = threshold_mantissas()
    thresholds = "\n".join(f"\t0x{cell.threshold:016x}ULL," for cell in cells)
    bases = ", ".join(str(cell.base) for cell in cells)
    return f"""\
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Written by `python -m hopscope.model.histogram --c-table`; `make lint` compares the two.
#pragma once

// clang-format off
static const u64 hist_threshold[{CELLS}] = {{
{thresholds}
}};
static const s32 hist_base[{CELLS}] = {{{bases}}};
// clang-format on
"""


class Buckets(NamedTuple):
    """A histogram's buckets at some scale, dense.

    Attributes
    ----------
    scale
        A doubling has 2**scale buckets.
    first_index
        Bucket index of `counts[0]`; index i is 2**((i - 1) / 2**scale) s < value <= 2**(i / 2**scale) s.
    counts
        int64 of shape (n,).
    zero_count, overflow_count
        Values of at most 2**-24 s, and of more than 256 s.
    """

    scale: int
    first_index: int
    counts: I64
    zero_count: int
    overflow_count: int

    def edges_s(self) -> F64:
        """Return the bounds in seconds, float64 of shape (n + 1,): bucket j is edges[j] < value <= edges[j + 1]."""
        indices = np.arange(self.first_index - 1, self.first_index + len(self.counts))
        return np.exp2(indices / 2.0**self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Durations of one series: counts by slot, their exact sum and their exact maximum.

    Parameters
    ----------
    counts
        Integers of shape (258,); kept as a read-only int64 copy.
    sum_ns, max_ns
        Sum and largest of all durations; both 0 where there are none.

    Raises
    ------
    ValueError
        For a wrong shape or a negative count.
    """

    counts: I64
    sum_ns: int
    max_ns: int

    def __post_init__(self) -> None:
        """Copy and check the counts."""
        counts = np.array(self.counts, dtype=np.int64)
        if counts.shape != (SLOTS,) or counts.min() < 0:
            raise ValueError(f"counts must be {SLOTS} non-negative integers, not shape {counts.shape}")
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @classmethod
    def empty(cls) -> Histogram:
        """Return a histogram without samples."""
        return cls(np.zeros(SLOTS, np.int64), 0, 0)

    @classmethod
    def from_values(cls, values_ns: npt.ArrayLike) -> Histogram:
        """Return the histogram of non-negative durations in ns, integers of shape (n,)."""
        values = np.asarray(values_ns, dtype=np.int64)
        slots = np.searchsorted(np.array(thresholds_ns()), values, side="left")
        counts = np.bincount(slots, minlength=SLOTS)
        return cls(counts, int(values.sum()), int(values.max(initial=0)))

    def __eq__(self, other: object) -> bool:
        """Compare counts, sum and maximum."""
        if not isinstance(other, Histogram):
            return NotImplemented
        same = self.sum_ns == other.sum_ns and self.max_ns == other.max_ns
        return same and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # arrays do not hash

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    @property
    def mean_ns(self) -> float | None:
        """Exact mean, None without samples."""
        count = self.count
        return self.sum_ns / count if count else None

    def percentile(self, q: float) -> float | None:
        """Return the duration in ns that `q` per cent of the samples do not exceed, None without samples.

        The bucket is exact, the place in it is interpolated geometrically (linearly in the zero bucket). The error
        is therefore below a bucket's width: 9.05 % of the value, 59.6 ns in the zero bucket; above 256 s nothing
        but the maximum bounds it. Never more than `max_ns`.

        Raises
        ------
        ValueError
            If `q` is not within 0..100.
        """
        place = self._place(q)
        if place is None:
            return None
        slot, fraction = place
        return min(_interpolate_ns(slot, fraction, self.max_ns), float(self.max_ns))

    def percentile_bounds(self, q: float) -> tuple[float, float] | None:
        """Return the durations in ns between which the exact percentile is: those of its bucket, None without samples.

        Raises
        ------
        ValueError
            If `q` is not within 0..100.
        """
        place = self._place(q)
        if place is None:
            return None
        slot, _ = place
        lower_ns = float(lower_bounds_s()[slot]) * _NS_PER_S
        return lower_ns, min(float(upper_bounds_s()[slot]) * _NS_PER_S, float(self.max_ns))

    def _place(self, q: float) -> tuple[int, float] | None:
        """Return the slot of a percentile, and which part of the slot's samples do not exceed it; None without any."""
        if not 0 <= q <= 100:
            raise ValueError(f"a percentile is within 0..100, not {q}")
        running = np.cumsum(self.counts)
        count = int(running[-1])
        if not count:
            return None
        rank = q / 100 * count
        slot = int(np.searchsorted(running, rank)) if rank > 0 else int(np.argmax(self.counts > 0))
        inside = int(self.counts[slot])
        return slot, (rank - int(running[slot]) + inside) / inside

    def __add__(self, other: Histogram) -> Histogram:
        """Merge two series: exact."""
        counts = self.counts + other.counts
        return Histogram(counts, self.sum_ns + other.sum_ns, max(self.max_ns, other.max_ns))

    def __sub__(self, earlier: Histogram) -> Histogram:
        """Return `since(earlier)`."""
        return self.since(earlier)

    def since(self, earlier: Histogram, max_ns: int | None = None) -> Histogram:
        """Return what came after an earlier reading of the same cumulative series.

        Parameters
        ----------
        earlier
            The earlier reading.
        max_ns
            Largest duration of the interval. Counts and sum tell it only if it is a new record; without it, and
            otherwise, the upper bound of the highest bucket in use stands in, at most 9.05 % too large.

        Raises
        ------
        ValueError
            If a count went down: not the same series, or readings in the wrong order.
        """
        counts = self.counts - earlier.counts
        if max_ns is None:
            max_ns = self.max_ns if self.max_ns > earlier.max_ns else min(self.max_ns, _highest_ns(counts))
        return Histogram(counts, self.sum_ns - earlier.sum_ns, max_ns)

    def downscale(self, scale: int) -> Buckets:
        """Merge neighbours until a doubling has 2**scale buckets: exact, index i goes to ceil(i / 2) at each step.

        Raises
        ------
        ValueError
            If `scale` is not within -2..3. Below -2 the zero and the overflow bucket do not end at a bound.
        """
        if not MIN_SCALE <= scale <= SCALE:
            raise ValueError(f"a histogram of scale {SCALE} can be shown at {MIN_SCALE}..{SCALE}, not at {scale}")
        step = 2 ** (SCALE - scale)
        # The first index follows a multiple of 32, so that rows of `step` buckets are the merged buckets.
        merged = self.counts[1:OVERFLOW_SLOT].reshape(-1, step).sum(axis=1)
        return Buckets(
            scale, -(-MIN_INDEX // step), merged, int(self.counts[ZERO_SLOT]), int(self.counts[OVERFLOW_SLOT])
        )


def _interpolate_ns(slot: int, fraction: float, max_ns: int) -> float:
    upper_ns = float(upper_bounds_s()[slot]) * _NS_PER_S
    if slot == ZERO_SLOT:
        return upper_ns * fraction
    lower_ns = float(lower_bounds_s()[slot]) * _NS_PER_S
    if slot == OVERFLOW_SLOT:
        upper_ns = max(float(max_ns), lower_ns)
    return float(lower_ns * (upper_ns / lower_ns) ** fraction)


def _highest_ns(counts: I64) -> int:
    """Return the largest duration that the highest slot in use can hold, 0 for none."""
    used = np.flatnonzero(counts)
    if not len(used):
        return 0
    slot = int(used[-1])
    return U64_MAX if slot == OVERFLOW_SLOT else thresholds_ns()[slot]


def main(arguments: list[str]) -> int:
    """Print the kernel side's table; return the exit code."""
    if arguments != ["--c-table"]:
        sys.stderr.write("usage: python -m hopscope.model.histogram --c-table\n")
        return 2
    sys.stdout.write(c_table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
