# SPDX-License-Identifier: Apache-2.0
"""Collects what is known at some times, for a curve."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from hopscope.clock.curve import Curve

if TYPE_CHECKING:
    from hopscope.clock.block import Estimate, Origin
    from hopscope.clock.bounds import Floats
    from hopscope.clock.domain import ClockDomain


class Knots:
    """Knots of a curve to be, in the order of their times.

    Parameters
    ----------
    limit
        How many are kept at most: the last ones. All if None.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._rows: deque[tuple[float, ...]] = deque(maxlen=limit)
        self._breaks: deque[bool] = deque(maxlen=limit)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    def add(self, times_ns: Floats, estimate: Estimate) -> None:
        """Add what is known at some times."""
        for row in zip(times_ns, estimate.value, estimate.low, estimate.high, strict=True):
            self._rows.append((*map(float, row), estimate.rate, estimate.rate_low, estimate.rate_high))
            self._breaks.append(False)

    def end(self) -> None:
        """Say that after the last knot a clock was set."""
        if self._breaks:
            self._breaks[-1] = True

    def curve(self, source: ClockDomain, target: ClockDomain, origin: Origin, wander: float) -> Curve:
        """Return the curve; there must be a knot."""
        at, value, low, high, rate, rate_low, rate_high = np.array(self._rows).T
        at_ns = np.rint(at).astype(np.int64) + origin.at_ns
        breaks = np.array(self._breaks)
        possible = (value, low, high, rate, rate_low, rate_high)
        return Curve(source, target, origin.value_ns, at_ns, *possible, breaks, wander)
