# SPDX-License-Identifier: Apache-2.0
"""How far one clock is ahead of another over time, as a line from knot to knot, with what else it may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.clock.domain import Converted
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.clock.domain import ClockDomain

    Floats = NDArray[np.float64]
    Ns = NDArray[np.int64]

# How fast the ratio of two frequencies may change: 2 ppb in a second. Seconds per second squared.
WANDER: Final = 2e-9
_SECOND: Final = 1e9


@dataclass(frozen=True, slots=True)
class Curve:
    """`target` minus `source` over time of `source`.

    Attributes
    ----------
    source, target
        The clocks.
    base_ns
        Added to all values, so that they are exact as floats.
    at_ns
        int64, ascending, one at least: times of the knots.
    value_ns, low_ns, high_ns
        float64: what is most likely at each knot, and the ends of what is possible.
    rate, rate_low, rate_high
        float64, ns per ns: how the value changes beside a knot, most likely and possibly.
    breaks
        bool: between this knot and the next one a clock was set, or nobody knows.
    wander
        How fast the ratio of frequencies may change, 1/s.
    contradictory
        Windows that no two clocks could have had, which were left out.
    """

    source: ClockDomain
    target: ClockDomain
    base_ns: int
    at_ns: Ns
    value_ns: Floats
    low_ns: Floats
    high_ns: Floats
    rate: Floats
    rate_low: Floats
    rate_high: Floats
    breaks: NDArray[np.bool_]
    wander: float = WANDER
    contradictory: int = 0

    def convert(self, times_ns: Ns) -> Converted:
        """Return times of `target` for times of `source`, with their bounds.

        Between knots the bound is that of the knots, and what a changing frequency may do meanwhile; across a break it
        covers both sides; beyond the ends it grows with the time since.
        """
        times_ns = np.asarray(times_ns, np.int64)
        value, low, high = self.offsets(times_ns)
        whole = np.rint(value).astype(np.int64)
        bound = np.ceil(np.maximum(high - value, value - low) + 0.5).astype(np.int64)
        return Converted(times_ns + self.base_ns + whole, bound)

    def offsets(self, times_ns: Ns) -> tuple[Floats, Floats, Floats]:
        """Return value, low and high at each time, without `base_ns`."""
        last = len(self.at_ns) - 1
        left = np.clip(np.searchsorted(self.at_ns, times_ns, side="right") - 1, 0, max(last - 1, 0))
        right = np.minimum(left + 1, last)
        after, before = self._beside(left, times_ns), self._beside(right, times_ns)
        between = self._between(left, right, times_ns)
        inside = (times_ns >= self.at_ns[0]) & (times_ns <= self.at_ns[-1])
        # Where one line leads from knot to knot, what each of them says must hold; across a break, one or the other.
        broken = self.breaks[left] & (left < right) & inside
        near_left = times_ns - self.at_ns[left] <= self.at_ns[right] - times_ns
        one_side = tuple(np.where(near_left, a, b) for a, b in zip(after, before, strict=True))
        low = np.where(broken, np.minimum(after[1], before[1]), np.where(inside, between[1], one_side[1]))
        high = np.where(broken, np.maximum(after[2], before[2]), np.where(inside, between[2], one_side[2]))
        value = np.where(inside & ~broken, between[0], one_side[0])
        return value, low, high

    def rates(self, times_ns: Ns) -> tuple[Floats, Floats, Floats]:
        """Return rate, rate_low and rate_high of the knot before each time."""
        knot = np.clip(np.searchsorted(self.at_ns, times_ns, side="right") - 1, 0, len(self.at_ns) - 1)
        return self.rate[knot], self.rate_low[knot], self.rate_high[knot]

    def breaks_between(self, times_ns: Ns) -> NDArray[np.bool_]:
        """Tell between which neighbours of ascending times a clock was set; of the last one, False."""
        broken = np.flatnonzero(self.breaks[:-1])
        begun = np.searchsorted(self.at_ns[broken], times_ns[1:])  # those that begin before the later one
        ended = np.searchsorted(self.at_ns[broken + 1], times_ns[:-1], side="right")
        return np.append(begun > ended, False)

    def inverted(self) -> Curve:
        """Return the curve from `target` to `source`."""
        middle = np.rint(self.value_ns).astype(np.int64)
        at_ns = self.at_ns + self.base_ns + middle
        if not (np.diff(at_ns) > 0).all():
            raise UsageError(f"The {self.target} was set back: its times have two meanings")
        # The value is taken a little beside the knot; what it changes by over so little is what is possible anyway.
        slack = np.maximum(self.high_ns - middle, middle - self.low_ns) * np.maximum(
            np.abs(self.rate_low), np.abs(self.rate_high)
        )
        rate, rate_low, rate_high = (-rate / (1 + rate) for rate in (self.rate, self.rate_high, self.rate_low))
        return replace(
            self,
            source=self.target,
            target=self.source,
            base_ns=-self.base_ns,
            at_ns=at_ns,
            value_ns=-self.value_ns,
            low_ns=-self.high_ns - slack,
            high_ns=-self.low_ns + slack,
            rate=rate,
            rate_low=rate_low,
            rate_high=rate_high,
        )

    def _beside(self, knot: NDArray[np.intp], times_ns: Ns) -> tuple[Floats, Floats, Floats]:
        since = (times_ns - self.at_ns[knot]).astype(np.float64)
        curve = self.wander / _SECOND / 2 * since**2
        ends = self.rate_low[knot] * since, self.rate_high[knot] * since
        low = self.low_ns[knot] + np.minimum(*ends) - curve
        high = self.high_ns[knot] + np.maximum(*ends) + curve
        return np.clip(self.value_ns[knot] + self.rate[knot] * since, low, high), low, high

    def _between(self, left: NDArray[np.intp], right: NDArray[np.intp], times_ns: Ns) -> tuple[Floats, Floats, Floats]:
        apart = np.maximum(self.at_ns[right] - self.at_ns[left], 1).astype(np.float64)
        since = (times_ns - self.at_ns[left]).astype(np.float64)
        share = np.clip(since / apart, 0.0, 1.0)
        value, low, high = (
            ends[left] + share * (ends[right] - ends[left]) for ends in (self.value_ns, self.low_ns, self.high_ns)
        )
        # A curve whose slope changes by no more than that leaves its chord by so much at most.
        curve = self.wander / _SECOND / 2 * since * (apart - since)
        return value, low - curve, high + curve
