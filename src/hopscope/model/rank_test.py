# SPDX-License-Identifier: Apache-2.0
"""Whether durations of one run are longer than those of another: rank statistics from counts by bucket.

Durations in one bucket are ties. Consecutive durations of a run are similar: a queue that is full stays full for a
while. A test that took each duration as independent of the others would find a difference between any two runs. So
each run is cut into slices of time, and the spread between the slices of a run tells how much less than its count a
run is worth (the design effect of cluster samples; Kish, Survey Sampling, 1965). Where consecutive slices are similar,
too, they count as fewer (the effective size of an autoregressive series of order 1; Bartlett, 1946), and as slices are
few, Student's distribution applies (Welch, 1947).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atan, inf, pi, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"
F64: TypeAlias = "NDArray[np.float64]"

# Slices that are more similar to the next one than this are too few to estimate by how much.
_MOST_CORRELATION: Final = 0.9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


@dataclass(frozen=True, slots=True)
class Difference:
    """How much larger the values of one run are than those of another.

    Parameters
    ----------
    effect
        -1 (all smaller) .. 1 (all larger); of a mean of ranks Cliff's delta, of a share the difference.
    probability
        That chance alone makes such a difference, or a larger one, two-sided.
    """

    effect: float
    probability: float


def rank_difference(before: I64, after: I64) -> Difference:
    """Compare two runs by ranks (Mann and Whitney, 1947), with ties and with slices of time.

    Parameters
    ----------
    before, after
        Counts, int64 of shape (slices, buckets), buckets in ascending order; a run may have slices without values.

    Returns
    -------
    Difference
        Its effect is Cliff's delta: of how many pairs more the value of `after` is the larger one.
    """
    return _difference(before, after, _ridits(before.sum(axis=0) + after.sum(axis=0)), 2.0)


def share_difference(before: I64, after: I64, part: float) -> Difference:
    """Compare two runs by the share of values above the bucket that `part` (0..1) of the values of `before` reach."""
    above = np.arange(before.shape[1]) > bucket_of_part(before, part)
    return _difference(before, after, above.astype(np.float64), 1.0)


def bucket_of_part(counts: I64, part: float) -> int:
    """Return the first bucket up to which `part` (0..1) of a run's values are."""
    total = counts.sum(axis=0)
    return int(np.searchsorted(np.cumsum(total), part * total.sum()))


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Return for each probability the least false discovery rate at which it is a finding (1995).

    Of the findings with at most q, on average a fraction of at most q is due to chance; if nothing differs, there is a
    finding with a probability of at most q. Tests of the same run may depend on each other positively.
    """
    order = np.argsort(probabilities, kind="stable")[::-1]
    rates, least = [1.0] * len(probabilities), 1.0
    for place, index in enumerate(order.tolist()):
        least = min(least, probabilities[index] * len(probabilities) / (len(probabilities) - place))
        rates[index] = least
    return rates


def _ridits(counts: I64) -> F64:
    """Return each bucket's mean rank, 0..1, among all values."""
    running = np.cumsum(counts)
    return (running - counts / 2) / max(int(running[-1]), 1)


def _difference(before: I64, after: I64, scores: F64, scale: float) -> Difference:
    """Compare the runs' mean scores of a value; `scale` makes the effect of their difference."""
    if not before.sum() or not after.sum():
        return Difference(0.0, 1.0)
    difference = _mean(after, scores) - _mean(before, scores)
    errors = [_error(each, scores) for each in (before, after)]
    variance = sum(each for each, _ in errors)
    if not variance:
        return Difference(scale * difference, 0.0 if difference else 1.0)
    if variance == inf:
        return Difference(scale * difference, 1.0)
    freedom = variance**2 / sum(each**2 / own for each, own in errors)
    return Difference(scale * difference, student(abs(difference) / sqrt(variance), freedom))


def student(ratio: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `ratio` in either direction."""
    beyond, whole = (_power_of_cosine(start, freedom - 1) for start in (atan(ratio / sqrt(freedom)), 0.0))
    return min(1.0, beyond / whole)


def _power_of_cosine(start: float, power: float) -> float:
    """Return the integral of cos(x)**power from `start` to pi / 2: the density of Student's t in another variable."""
    half = (pi / 2 - start) / 2
    return float(half * (_WEIGHTS @ np.cos(start + half * (_NODES + 1)) ** power))


def _mean(counts: I64, scores: F64) -> float:
    return float(counts.sum(axis=0) @ scores / counts.sum())


def _error(counts: I64, scores: F64) -> tuple[float, float]:
    """Return the variance of a run's mean score and its degrees of freedom: infinite if one slice has all values."""
    sizes = counts.sum(axis=1)
    total, used = int(sizes.sum()), sizes > 0
    slices = int(used.sum())
    if slices < 2:
        return inf, 1.0
    mean = _mean(counts, scores)
    alone = float(counts.sum(axis=0) @ (scores - mean) ** 2) / total / total
    residuals = (counts[used] @ scores - sizes[used] * mean) / total
    similar = _correlation(residuals)
    worth = (1 - similar) / (1 + similar)
    between = float((residuals**2).sum()) * slices / (slices - 1) / worth
    return max(alone, between), max(slices * worth - 1, 1.0)


def _correlation(residuals: F64) -> float:
    """Return how similar consecutive slices may be: their correlation, plus its standard error.

    It is without the bias of short series (Marriott and Pope, 1954). Without the error, of two runs whose fluctuations
    last a twentieth of a run, and that do not differ, one in 40 instead of one in 100 was found to differ.
    """
    square = float((residuals**2).sum())
    if not square:
        return 0.0
    found = float((residuals[1:] * residuals[:-1]).sum()) / square
    slices = len(residuals)
    return min(max(found + (1 + 3 * found) / slices + 1 / sqrt(slices), 0.0), _MOST_CORRELATION)
