# SPDX-License-Identifier: Apache-2.0
"""A logarithmic axis of time, with round numbers at its ends and marks."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Final

from hopscope.model.cdf import points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import F64, Histogram

# Where durations in the first bucket begin: the axis has no 0.
_LEAST_NS: Final = 20.0
_ROUND: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Durations from `low_ns` to `high_ns`."""

    low_ns: float
    high_ns: float

    @classmethod
    def of(cls, histograms: Sequence[Histogram]) -> TimeAxis:
        """Return the shortest axis with round ends that holds all samples, those of the first bucket at its begin.

        Raises
        ------
        ValueError
            There are no samples.
        """
        found = [points(histogram).x_ns for histogram in histograms if histogram.count]
        if not found:
            raise ValueError("an axis needs samples")
        low_ns, high_ns = (max(each, _LEAST_NS) for each in (min(x[0] for x in found), max(x[-1] for x in found)))
        low = max(each for each in _rounds(low_ns) if each <= low_ns * (1 + 1e-9))
        high = min(each for each in _rounds(high_ns) if each >= high_ns * (1 - 1e-9))
        return cls(low, high if high > low else 2 * low)

    def place(self, ns: float) -> float:
        """Return where a duration is, 0..1; what is off the axis is at its end."""
        if ns <= self.low_ns:
            return 0.0
        return min(log10(ns / self.low_ns) / log10(self.high_ns / self.low_ns), 1.0)

    def places(self, x_ns: F64) -> list[float]:
        """Return where each of some durations is."""
        return [self.place(ns) for ns in x_ns.tolist()]

    def marks_ns(self, most: int) -> list[float]:
        """Return round durations on the axis, `most` of them or fewer: 1, 2, 5, or powers of ten, or some of those."""
        all_round = [
            digit * 10.0**power
            for power in range(floor(log10(self.low_ns)), floor(log10(self.high_ns)) + 1)
            for digit in _ROUND
        ]
        inside = [ns for ns in all_round if self.low_ns * (1 - 1e-9) <= ns <= self.high_ns * (1 + 1e-9)]
        if len(inside) <= most:
            return inside
        decades = [ns for ns in inside if f"{ns:e}".startswith("1.000")]
        return decades[:: -(-len(decades) // max(most, 1))]


def _rounds(ns: float) -> list[float]:
    power = floor(log10(ns))
    return [digit * 10.0**each for each in (power - 1, power, power + 1) for digit in _ROUND]
