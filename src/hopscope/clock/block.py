# SPDX-License-Identifier: Apache-2.0
"""A while of probes, in which one line is to fit: windows, what is possible in it, and what is most likely."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from hopscope.clock.bounds import Corridor, Limits, hull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.clock.bounds import Floats, Range
    from hopscope.clock.samples import Ns, Samples

_SECOND: Final = 1e9
# A window counts the less, the more its least delays are above the least of all: half, from this share of that on.
_HALF_WEIGHT: Final = 0.15
_LINE: Final = 3
# Between two windows there is half a second, in which a slope may change as well.
_BESIDE_S: Final = 1.0


class Origin(NamedTuple):
    """What times and values are counted from, so that they are exact as floats."""

    at_ns: int
    value_ns: int

    @classmethod
    def of(cls, samples: Samples) -> Self:
        """Return the first of some samples; there must be one."""
        at_ns, value_ns = samples.upper() if len(samples.there) else samples.lower()
        return cls(int(at_ns[0]), int(value_ns[0]))


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of a short while, or what matters of them.

    Attributes
    ----------
    upper, lower
        What the difference of the clocks is not above and not below.
    ends_ns
        Time of the first and of the last packet.
    turn
        By how much the ratio of frequencies is known to have changed in or before it, without its sign.
    """

    upper: Limits
    lower: Limits
    ends_ns: tuple[float, float]
    turn: float = 0.0

    @classmethod
    def of(cls, samples: Samples, origin: Origin, turn: float = 0.0) -> Self:
        """Keep the corners of the convex hulls, with all that the stamps may be off; there must be a packet."""
        upper = hull(_counted(*samples.upper(), origin, samples.bound_ns), sign=1)
        lower = hull(_counted(*samples.lower(), origin, -samples.bound_ns), sign=-1)
        ends = [side.at_ns[end] for side in (upper, lower) if len(side.at_ns) for end in (0, -1)]
        return cls(upper, lower, (float(min(ends)), float(max(ends))), turn)

    @property
    def two_sided(self) -> bool:
        """There are packets of both directions."""
        return bool(len(self.upper.at_ns) and len(self.lower.at_ns))


class Estimate(NamedTuple):
    """At some times: what is most likely and what is possible, in ns; and the slopes, in ns per ns."""

    value: Floats
    low: Floats
    high: Floats
    rate: float
    rate_low: float
    rate_high: float


@dataclass(frozen=True)
class Block:
    """Windows that one line fits.

    Attributes
    ----------
    windows
        In order.
    corridor
        All lines that do.
    slack_ns, bend
        How far the truth may be from the nearest line, and its slope from that line's, as frequencies change.
    """

    windows: Sequence[Window]
    corridor: Corridor
    slack_ns: float
    bend: float

    @classmethod
    def of(cls, windows: Sequence[Window], wander: float) -> Block | None:
        """Return the block, None where no line fits, or one of the directions has no packets at all.

        A curve with a second derivative of at most `wander` is within T²/16 of that from a line, over a while T; one
        whose slope changes once, within T/8 of the change.
        """
        upper = joined([window.upper for window in windows])
        lower = joined([window.lower for window in windows])
        if not len(upper.at_ns) or not len(lower.at_ns):
            return None
        span_s = (max(window.ends_ns[1] for window in windows) - min(window.ends_ns[0] for window in windows)) / _SECOND
        turns = sum(window.turn for window in windows)
        slack_ns = (wander * span_s**2 / 16 + turns * (span_s + _BESIDE_S) / 8) * _SECOND
        widened = Limits(upper.at_ns, upper.value_ns + slack_ns), Limits(lower.at_ns, lower.value_ns - slack_ns)
        corridor = Corridor.between(*widened)
        return None if corridor is None else cls(windows, corridor, slack_ns, wander * span_s + turns)

    def at(self, times_ns: Floats) -> Estimate:
        """Return what the block says of some times within it: the middle of what is possible in its own middle.

        There both directions' rarest delays meet; from there on, along the line of `along`.
        """
        low, high = self._possible(times_ns)
        ends = [end for window in (self.windows[0], self.windows[-1]) for end in window.ends_ns]
        centre = np.array([(ends[0] + ends[-1]) / 2])
        middle = sum(self._possible(centre)) / 2
        value = np.clip(middle + self.line[1] * (times_ns - centre), low, high)
        return self._with_rates(value, low, high)

    def along(self, times_ns: Floats) -> Estimate:
        """Return what the block says of some times at its end: a line through the windows' least delays."""
        low, high = self._possible(times_ns)
        value = np.clip(self.line[0] + self.line[1] * times_ns, low, high)
        return self._with_rates(value, low, high)

    @cached_property
    def line(self) -> tuple[float, float]:
        """Height at time 0 and slope of the line through the middles between both directions' least delays."""
        slope = self.corridor.widest
        windows = [window for window in self.windows if window.two_sided]
        if len(windows) < _LINE:
            return float(self.corridor.middle(np.zeros(1))[0]), slope
        at, middle, gap = minima(windows, slope)
        weight = 1 / (gap - gap.min() + _HALF_WEIGHT * max(gap.min(), 1.0))
        centre = np.average(at, weights=weight**2)
        rows = np.stack([weight, weight * (at - centre)], axis=1)
        height, extra = np.linalg.lstsq(rows, weight * middle, rcond=None)[0]
        return float(height - extra * centre), float(slope + extra)

    def _possible(self, times_ns: Floats) -> Range:
        found = self.corridor.at(times_ns)
        return type(found)(found.low - self.slack_ns, found.high + self.slack_ns)

    def _with_rates(self, value: Floats, low: Floats, high: Floats) -> Estimate:
        slopes = self.corridor.slopes
        rate_low, rate_high = float(slopes[0]) - self.bend, float(slopes[-1]) + self.bend
        return Estimate(value, low, high, float(np.clip(self.line[1], rate_low, rate_high)), rate_low, rate_high)


def minima(windows: Sequence[Window], slope: float) -> tuple[Floats, Floats, Floats]:
    """Return time, middle and half gap of windows' least delays, along a slope (what it rises to is taken off).

    Each must have packets of both directions.
    """
    upper = _least([window.upper for window in windows], slope, np.minimum)
    lower = _least([window.lower for window in windows], slope, np.maximum)
    at = np.array([window.ends_ns for window in windows]).mean(axis=1)
    return at, (upper + lower) / 2, (upper - lower) / 2


def _least(parts: Sequence[Limits], slope: float, of: np.ufunc) -> Floats:
    every = joined(parts)
    starts = np.cumsum([0, *(len(part.at_ns) for part in parts[:-1])])
    least: Floats = of.reduceat(every.value_ns - slope * every.at_ns, starts)
    return least


def joined(parts: Sequence[Limits]) -> Limits:
    """Return several sets of points as one."""
    return Limits(np.concatenate([part.at_ns for part in parts]), np.concatenate([part.value_ns for part in parts]))


def _counted(at_ns: Ns, value_ns: Ns, origin: Origin, more_ns: int) -> Limits:
    at = (at_ns - origin.at_ns).astype(np.float64)
    return Limits(at, (value_ns - origin.value_ns + more_ns).astype(np.float64))
