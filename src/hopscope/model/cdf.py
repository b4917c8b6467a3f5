# SPDX-License-Identifier: Apache-2.0
"""Cumulative distributions of durations, and how far two of them are apart.

At the bounds of the buckets a cumulative distribution is exact. Between them it is not known; every figure that
depends on that comes with the bounds between which the exact one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.model.histogram import lower_bounds_s, upper_bounds_s

if TYPE_CHECKING:
    from hopscope.model.histogram import F64, Histogram

PERCENTILES: Final = (1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9)

# How often two sets of samples of the same distribution may be further apart than `Distance.by_chance`.
_CHANCE: Final = 0.01
_NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Durations under a name."""

    name: str
    histogram: Histogram


class Points(NamedTuple):
    """A cumulative distribution as a polyline.

    Attributes
    ----------
    x_ns
        Bounds of the buckets in use, ascending, the last one the maximum; float64 of shape (n,).
    part
        Which part (0..1) of the samples is not longer; float64 of shape (n,).
    """

    x_ns: F64
    part: F64


def points(histogram: Histogram) -> Points:
    """Return the cumulative distribution: exact at each point, to be interpolated between the logarithms of `x_ns`.

    That is how :meth:`~hopscope.model.histogram.Histogram.percentile` interpolates, but for the first bucket, which
    begins at 0. Without samples there are no points.
    """
    used = np.flatnonzero(histogram.counts)
    if not len(used):
        return Points(np.empty(0), np.empty(0))
    part = np.cumsum(histogram.counts) / histogram.count
    lower_ns, upper_ns = (bounds[used] * _NS_PER_S for bounds in (lower_bounds_s(), upper_bounds_s()))
    x_ns = np.column_stack([lower_ns, np.minimum(upper_ns, histogram.max_ns)]).ravel()
    y = np.column_stack([np.concatenate(([0.0], part[used[:-1]])), part[used]]).ravel()
    return Points(np.maximum.accumulate(x_ns), y)


@dataclass(frozen=True, slots=True)
class Distance:
    """The two-sample Kolmogorov-Smirnov distance: how far apart two cumulative distributions are at most, 0..1.

    Attributes
    ----------
    at_least, at_most
        Between which the distance of the samples themselves is: the first is the distance at the bounds of the buckets.
    at_ns
        The bound at which `at_least` is found.
    before, after
        Which part of each is not longer than `at_ns`.
    by_chance
        What two sets of independent samples of one distribution exceed once in a hundred times (the asymptotic
        critical value); samples of a network are hardly independent, so that it takes more than this to mean anything.
    """

    at_least: float
    at_most: float
    at_ns: float
    before: float
    after: float
    by_chance: float


def distance(before: Histogram, after: Histogram) -> Distance | None:
    """Return how far two distributions are apart, None where one has no samples."""
    if not before.count or not after.count:
        return None
    one, other = (np.cumsum(each.counts) / each.count for each in (before, after))
    gaps = np.abs(one - other)
    slot = int(np.argmax(gaps))
    # Inside a bucket each may already be where it ends, and the other still where it begins.
    start_one, start_other = (np.concatenate(([0.0], each[:-1])) for each in (one, other))
    inside = np.maximum(one - start_other, other - start_one)
    both = (before.counts > 0) & (after.counts > 0)
    at_most = max(float(gaps.max()), float(inside[both].max(initial=0.0)))
    pairs = 1 / before.count + 1 / after.count
    return Distance(
        at_least=float(gaps[slot]),
        at_most=at_most,
        at_ns=min(float(upper_bounds_s()[slot]) * _NS_PER_S, float(max(before.max_ns, after.max_ns))),
        before=float(one[slot]),
        after=float(other[slot]),
        by_chance=min(sqrt(log(2 / _CHANCE) / 2 * pairs), 1.0),
    )


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much a percentile moved.

    Attributes
    ----------
    q
        The percentile, 0..100.
    before_ns, after_ns
        It, interpolated in its bucket.
    least, most
        Between which the ratio of the exact percentiles, after to before, is. `most` may be infinite.
    """

    q: float
    before_ns: float
    after_ns: float
    least: float
    most: float

    @property
    def ratio(self) -> float | None:
        """After to before; None where before is 0."""
        return self.after_ns / self.before_ns if self.before_ns else None

    @property
    def known(self) -> bool:
        """Whether it moved at all: the buckets are narrow enough to tell."""
        return not self.least <= 1 <= self.most


def shift(before: Histogram, after: Histogram, q: float) -> Shift | None:
    """Return by how much a percentile moved, None where one has no samples.

    Raises
    ------
    ValueError
        If `q` is not within 0..100.
    """
    old_ns, new_ns = before.percentile(q), after.percentile(q)
    old_bounds, new_bounds = before.percentile_bounds(q), after.percentile_bounds(q)
    if old_ns is None or new_ns is None or old_bounds is None or new_bounds is None:
        return None
    least = new_bounds[0] / old_bounds[1] if old_bounds[1] else 0.0
    most = new_bounds[1] / old_bounds[0] if old_bounds[0] else inf
    return Shift(q, old_ns, new_ns, least, most)
