# SPDX-License-Identifier: Apache-2.0
"""All lines that the samples of a while leave possible: the dual convex hull.

Over a while in which both clocks run evenly, their difference is a line over time. It lies below every sample of one
direction and above every sample of the other. What lines do so, for each slope, is told by the convex hulls of either
set (Duda, Harrus, Haddad, Bernard: Estimating clocks in distributed systems, ICDCS 1987; Ashton: Algorithms for
off-line clock synchronisation, 1995). Nothing is assumed about delays but that they are not below zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Oscillators are within 100 ppm, and the kernel slews by 500 ppm at most (MAXFREQ, kernel/time/ntp.c).
STEEPEST: Final = 1.2e-3
_FEW: Final = 40


class Limits(NamedTuple):
    """Points that a line must not cross.

    Attributes
    ----------
    at_ns, value_ns
        float64, by time; at the same origin as those that they are compared with.
    """

    at_ns: Floats
    value_ns: Floats


class Range(NamedTuple):
    """What is possible at each of some times, in ns and in ns per ns."""

    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Corridor:
    """The lines between two sets of points.

    Attributes
    ----------
    slopes
        float64, ascending: the slopes at which the bounds have a corner; the first and the last are the extremes.
    tops, bottoms
        float64, of the same shape: how high and how low a line of each slope may be at time 0.
    """

    slopes: Floats
    tops: Floats
    bottoms: Floats

    @classmethod
    def between(cls, upper: Limits, lower: Limits) -> Corridor | None:
        """Return the lines below `upper` and above `lower`, None if there are none.

        Raises
        ------
        ValueError
            One of them is empty.
        """
        above, below = hull(upper, sign=1), hull(lower, sign=-1)
        slopes = np.concatenate([[-STEEPEST, STEEPEST], _edges(above), _edges(below)])
        slopes = np.unique(slopes[np.abs(slopes) <= STEEPEST])
        tops, bottoms = _intercepts(slopes, above, below)
        kept = _possible(slopes, tops - bottoms)
        if not len(kept):
            return None
        return cls(kept, *_intercepts(kept, above, below))

    def at(self, times_ns: Floats) -> Range:
        """Return how low and how high a line can be at each time."""
        rises = self.slopes[:, None] * times_ns[None, :]
        return Range((self.bottoms[:, None] + rises).min(axis=0), (self.tops[:, None] + rises).max(axis=0))

    @property
    def widest(self) -> float:
        """The slope at which the two directions are furthest apart: the most even delays."""
        gaps = self.tops - self.bottoms
        return float(self.slopes[gaps >= gaps.max()].mean())

    def middle(self, times_ns: Floats) -> Floats:
        """Return the line in the middle between both directions, of the slope `widest`."""
        slope = self.widest
        top, bottom = (float(np.interp(slope, self.slopes, values)) for values in (self.tops, self.bottoms))
        return (top + bottom) / 2 + slope * times_ns


def hull(limits: Limits, *, sign: int) -> Limits:
    """Return the corners of the convex hull: of its lower side for `sign` 1, of its upper side for -1.

    A point above the line between its two neighbours is on no lower side: of many, those are left out all at once as
    long as it helps, the rest one by one (the monotone chain of Andrew, 1979).
    """
    order = np.lexsort((limits.value_ns * sign, limits.at_ns))
    at, value = limits.at_ns[order], limits.value_ns[order]
    first = np.diff(at, prepend=-np.inf) > 0
    at, value = at[first], value[first]
    while len(at) > _FEW:
        rising = np.diff(value) / np.diff(at)
        corner = np.concatenate([[True], np.diff(rising) * sign > 0, [True]])
        if corner.all():
            return Limits(at, value)
        at, value = at[corner], value[corner]
    kept = _chain(at.tolist(), (value * sign).tolist())
    return Limits(at[kept], value[kept])


def _chain(at: list[float], value: list[float]) -> list[int]:
    kept: list[int] = []
    for index, (x, y) in enumerate(zip(at, value, strict=True)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (value[b] - value[a]) * (x - at[b]) < (y - value[b]) * (at[b] - at[a]):
                break
            kept.pop()
        kept.append(index)
    return kept


def _edges(corners: Limits) -> Floats:
    return np.diff(corners.value_ns) / np.diff(corners.at_ns)


def _intercepts(slopes: Floats, above: Limits, below: Limits) -> tuple[Floats, Floats]:
    tops = (above.value_ns[None, :] - slopes[:, None] * above.at_ns[None, :]).min(axis=1)
    bottoms = (below.value_ns[None, :] - slopes[:, None] * below.at_ns[None, :]).max(axis=1)
    return tops, bottoms


def _possible(slopes: Floats, gaps: Floats) -> Floats:
    """Return the slopes without those that leave no room, and the ones where the room ends, between two corners."""
    good = np.flatnonzero(gaps >= 0)
    if not len(good):
        return slopes[:0]
    ends = []
    for inside, outside in ((good[0], good[0] - 1), (good[-1], good[-1] + 1)):
        if 0 <= outside < len(slopes):
            share = gaps[inside] / (gaps[inside] - gaps[outside])
            ends.append(slopes[inside] + share * (slopes[outside] - slopes[inside]))
    return np.unique(np.concatenate([slopes[good], ends]))
