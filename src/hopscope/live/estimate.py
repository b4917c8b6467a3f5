# SPDX-License-Identifier: Apache-2.0
"""What the whole has been, of which programs measured a part: sums in which each sample has its weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.model.histogram import SLOTS
from hopscope.model.sampled import Spread

if TYPE_CHECKING:
    from hopscope.model.histogram import F64

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Spreads:
    """The sums of :class:`~hopscope.model.sampled.Spread`, of all series.

    Attributes
    ----------
    below_squared, below_by_all
        float64, shape (hops, groups, 258).
    all_squared, alone
        float64, shape (hops, groups).
    slices
        So far.
    """

    below_squared: F64
    below_by_all: F64
    all_squared: F64
    alone: F64
    slices: int

    @classmethod
    def none(cls, hops: int, groups: int) -> Spreads:
        """Return them of nothing."""
        slots, whole = (hops, groups, SLOTS), (hops, groups)
        return cls(np.zeros(slots), np.zeros(slots), np.zeros(whole), np.zeros(whole), 0)

    def plus(self, counts: Array, weights: F64, *, sliced: bool) -> Spreads:
        """Return them with what one slice measured, or what was measured one by one.

        Parameters
        ----------
        counts
            int64, shape (hops, groups, 258).
        weights
            float64, shape (hops,).
        """
        below = np.cumsum(counts, axis=2).astype(np.float64)
        every = below[:, :, -1]
        factor = weights * (weights - 1)
        by_slot, by_series = factor[:, None, None], factor[:, None]
        return Spreads(
            self.below_squared + by_slot * (below**2 if sliced else below),
            self.below_by_all + by_slot * (below * every[:, :, None] if sliced else below),
            self.all_squared + by_series * (every**2 if sliced else every),
            self.alone + by_series * every,
            self.slices + sliced,
        )

    def since(self, earlier: Spreads, hop: int, row: int) -> Spread:
        """Return what came of one series after an earlier state."""
        return Spread(
            self.below_squared[hop, row] - earlier.below_squared[hop, row],
            self.below_by_all[hop, row] - earlier.below_by_all[hop, row],
            float(self.all_squared[hop, row] - earlier.all_squared[hop, row]),
            float(self.alone[hop, row] - earlier.alone[hop, row]),
            self.slices - earlier.slices,
        )


class Estimate:
    """Adds up what was measured, with weights.

    Parameters
    ----------
    slots, sum_ns, discarded
        What was measured by now, which does not count: as :class:`~hopscope.live.series.Reading` has them.
    """

    def __init__(self, slots: Array, sum_ns: Array, discarded: Array) -> None:
        self._seen = slots, sum_ns, discarded
        self._sums = [np.zeros(each.shape) for each in self._seen]
        self.spreads = Spreads.none(slots.shape[1], slots.shape[2])

    def add(self, now: tuple[Array, Array, Array], weights: F64, *, sliced: bool) -> None:
        """Add what was measured since the last time, of each hop with its weight.

        Parameters
        ----------
        now
            Cumulative, as for the class.
        weights
            float64, shape (hops,).
        sliced
            Whether it is of a slice of time, rather than of samples that were taken one by one.
        """
        slots, sum_ns, discarded = (after - before for after, before in zip(now, self._seen, strict=True))
        self._seen = now
        self._sums[0] += slots * weights[None, :, None, None]
        self._sums[1] += sum_ns * weights[None, :, None]
        self._sums[2] += discarded * weights[:, None]
        self.spreads = self.spreads.plus(slots.sum(axis=0), weights, sliced=sliced)

    def rounded(self) -> list[Array]:
        """Return slots, sums and discards as whole numbers; none ever becomes less."""
        return [np.rint(each).astype(np.int64) for each in self._sums]
