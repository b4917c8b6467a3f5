# SPDX-License-Identifier: Apache-2.0
"""Histograms of which only a part was measured: estimates of the whole, and how far their percentiles may be off.

What is measured has a weight: that of a sample that stands for w of its kind is w. Samples are either taken by chance
one by one, or all of a slice of time are, and slices come at random times. In both cases the share of samples below a
bound is estimated by the weighted share, and its variance by that of a Horvitz-Thompson ratio (Särndal, Swensson and
Wretman, *Model Assisted Survey Sampling*, 1992, 5.8): sum of w (w - 1) (a - F b)², where of a slice, or of a sample
alone, `b` were measured and `a` of them are below the bound. A percentile is bounded by the durations whose share is
not further from it than the variance allows (Woodruff 1952), with the percentile's own share in place of the estimate,
so that few samples never look certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.model.histogram import lower_bounds_s, upper_bounds_s
from hopscope.model.snapshot import PERCENTILES

if TYPE_CHECKING:
    from hopscope.model.histogram import F64, Histogram
    from hopscope.model.snapshot import Bounds

CONFIDENCE_PERCENT: Final = 95
_NS_PER_S: Final = 10**9
# Of Student's t, two-sided, for 1 to 10 degrees of freedom; below, the expansion for more.
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_Z: Final = 1.96
_LEAST_SLICES: Final = 2


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which part of an interval was measured.

    Attributes
    ----------
    budget_percent
        What measuring may cost, of one CPU.
    represented_s
        The time that the estimates are of: up to the end of the last slice.
    open_s
        The time of it in which packets were followed.
    followed_s
        The same, of which each part counts as the share of packets that was followed in it.
    slices
        Times that programs were attached anew.
    """

    budget_percent: float
    represented_s: float
    open_s: float
    followed_s: float
    slices: int

    @property
    def open_share(self) -> float:
        """Share of the time in which packets were followed, 0 to 1."""
        return min(self.open_s / self.represented_s, 1.0) if self.represented_s > 0 else 0.0

    @property
    def followed_share(self) -> float:
        """Share of packets that were followed, 0 to 1, if as many came at all times."""
        return min(self.followed_s / self.represented_s, 1.0) if self.represented_s > 0 else 0.0

    @property
    def whole(self) -> bool:
        """Whether everything was measured."""
        return self.slices == 0 and self.followed_s >= self.open_s


@dataclass(frozen=True, slots=True)
class Spread:
    """Sums over what was measured of one series, each of w (w - 1) times what its name says.

    Attributes
    ----------
    below_squared, below_by_all
        float64, shape (258,): of samples not above the upper bound of each slot, squared, and times all samples.
    all_squared, alone
        Of all samples, squared, and as they are.
    slices
        How many slices there are; 0: samples were taken one by one.
    """

    below_squared: F64
    below_by_all: F64
    all_squared: float
    alone: float
    slices: int

    def bounds(self, histogram: Histogram, q: float) -> tuple[float, float | None] | None:
        """Return the durations in ns between which a percentile is with 95 % confidence.

        The upper one is None where it may be more than anything that was measured. None: nothing is known, as there
        are no samples, or is one slice alone.

        Raises
        ------
        ValueError
            If `q` is not within 0..100.
        """
        exact = histogram.percentile_bounds(q)
        if exact is None or not self.alone:
            return exact
        if 0 < self.slices < _LEAST_SLICES:
            return None
        running = np.cumsum(histogram.counts).astype(np.float64)
        total = running[-1]
        share, wanted = running / total, q / 100
        reach = self._quantile() * np.sqrt(wanted * (1 - wanted) * self._scatter(share, wanted, total))
        first = int(np.searchsorted(share, max(wanted - reach, 0), side="right" if wanted <= reach else "left"))
        lower_ns = min(float(lower_bounds_s()[first]) * _NS_PER_S, exact[0])
        if wanted + reach >= 1:
            return lower_ns, None
        last = int(np.searchsorted(share, wanted + reach))
        return lower_ns, max(min(float(upper_bounds_s()[last]) * _NS_PER_S, float(histogram.max_ns)), exact[1])

    def _scatter(self, share: F64, wanted: float, total: float) -> float:
        """Return the variance of a share, as a multiple of what p (1 - p) is of it; of chance alone at least."""
        slot = int(np.searchsorted(share, wanted))
        found = float(share[slot])
        squared = self.below_squared[slot] - 2 * found * self.below_by_all[slot] + found**2 * self.all_squared
        if self.slices:
            squared *= self.slices / (self.slices - 1)
        least = self.alone / total**2
        if found >= 1:  # nothing is above it, and how the share scatters does not show: each slice is as one sample
            return max(least, self.all_squared / total**2)
        return max(least, float(squared) / total**2 / (found * (1 - found)))

    def _quantile(self) -> float:
        """Return how many standard deviations make the confidence."""
        freedom = self.slices - 1 if self.slices else 0
        if not freedom:
            return _Z
        if freedom <= len(_T):
            return _T[freedom - 1]
        return _Z + (_Z**3 + _Z) / (4 * freedom)


class PercentileBounds(Mapping[str, "Bounds"]):
    """Of each of :data:`~hopscope.model.snapshot.PERCENTILES`, its bounds, computed when somebody looks at them.

    Parameters
    ----------
    histogram, spread
        Of one series.
    """

    def __init__(self, histogram: Histogram, spread: Spread) -> None:
        self._histogram, self._spread = histogram, spread

    def __getitem__(self, name: str) -> Bounds:
        """Return the bounds of a percentile in ns."""
        return self._spread.bounds(self._histogram, PERCENTILES[name])

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the percentiles."""
        return iter(PERCENTILES)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(PERCENTILES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what was computed to other processes, not what it is computed of."""
        return dict, (dict(self),)
