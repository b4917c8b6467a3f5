# SPDX-License-Identifier: Apache-2.0
"""Whether durations of one run are longer than those of another: rank statistics from counts by bucket.

Durations in one bucket are ties. What follows each other in a run is alike: a queue that is full stays full for a
while. A test that took each duration for independent of the others would find a difference between any two runs. So
each run is cut into slices of time, and the spread between the slices of a run says how much less than its count a
run is worth (the design effect of cluster samples; Kish, Survey Sampling, 1965).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"
F64: TypeAlias = "NDArray[np.float64]"


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


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return the probabilities corrected for how many they are (Holm, 1979)."""
    order = np.argsort(probabilities, kind="stable")
    corrected, least = [1.0] * len(probabilities), 0.0
    for place, index in enumerate(order.tolist()):
        least = max(least, min(1.0, probabilities[index] * (len(probabilities) - place)))
        corrected[index] = least
    return corrected


def _ridits(counts: I64) -> F64:
    """Return each bucket's mean rank, 0..1, among all values."""
    running = np.cumsum(counts)
    return (running - counts / 2) / max(int(running[-1]), 1)


def _difference(before: I64, after: I64, scores: F64, scale: float) -> Difference:
    """Compare the runs' mean scores of a value; `scale` makes the effect of their difference."""
    if not before.sum() or not after.sum():
        return Difference(0.0, 1.0)
    difference = _mean(after, scores) - _mean(before, scores)
    error = sqrt(_error(before, scores) + _error(after, scores))
    if not error:
        return Difference(scale * difference, 0.0 if difference else 1.0)
    return Difference(scale * difference, erfc(abs(difference) / error / sqrt(2)))


def _mean(counts: I64, scores: F64) -> float:
    return float(counts.sum(axis=0) @ scores / counts.sum())


def _error(counts: I64, scores: F64) -> float:
    """Return the variance of a run's mean score: of as many independent values, or of its slices if more."""
    sizes = counts.sum(axis=1)
    total = int(sizes.sum())
    mean = _mean(counts, scores)
    alone = float(counts.sum(axis=0) @ (scores - mean) ** 2) / total / total
    used = sizes > 0
    slices = int(used.sum())
    if slices < 2:
        return alone
    residuals = counts[used] @ scores - sizes[used] * mean
    return max(alone, float((residuals**2).sum()) / total**2 * slices / (slices - 1))
