# SPDX-License-Identifier: Apache-2.0
"""Follow the difference of two clocks while probes come in: what is known now, of now and of the while before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.clock.block import Block, Origin, Window
from hopscope.clock.curve import WANDER, Curve
from hopscope.clock.domain import same
from hopscope.clock.knots import Knots
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from hopscope.clock.domain import ClockDomain
    from hopscope.clock.samples import Samples

# 15 s of windows of 0.5 s
HORIZON: Final = 30
# An hour of them: what is older is for `smooth`.
KEPT: Final = 7200
# Of a larger change of frequency no line is drawn across it: this much makes the bound 40 ns larger for 15 s.
TURN: Final = 20e-9


class Follower:
    """Takes a window at a time.

    Parameters
    ----------
    source, target
        The clocks: the first and the second of the samples.
    horizon
        Of how many windows a line is drawn.
    wander
        How fast the ratio of both frequencies may change, 1/s.

    Attributes
    ----------
    contradictory
        Windows that no two clocks could have had, which were left out.
    one_sided
        Windows in which packets of only one direction, or of none, came through.
    breaks
        How many times a clock was set or its frequency changed, as far as can be seen or was told.
    """

    def __init__(
        self, source: ClockDomain, target: ClockDomain, *, horizon: int = HORIZON, wander: float = WANDER
    ) -> None:
        self._domains = source, target
        self._horizon = horizon
        self._wander = wander
        self._origin: Origin | None = None
        self._windows: list[Window] = []
        self._knots = Knots(KEPT)
        self._turn = 0.0
        self.contradictory = 0
        self.one_sided = 0
        self.breaks = 0

    def add(self, samples: Samples, turn: float = 0.0) -> None:
        """Take the samples of a window.

        Parameters
        ----------
        samples
            They.
        turn
            By how much somebody changed the frequency of either clock since the window before, as `turn`.

        Raises
        ------
        UsageError
            They are of other clocks.
        """
        for have, need in zip((samples.first, samples.second), self._domains, strict=True):
            same(have, need)
        self._turn += turn
        if not len(samples.there) or not len(samples.back):
            self.one_sided += 1
            if not len(samples.there) and not len(samples.back):
                return
        self._origin = self._origin or Origin.of(samples)
        turn, self._turn = self._turn, 0.0
        if turn < TURN:
            self._take(Window.of(samples, self._origin, turn))
        else:
            # It may have been before the window, or within it, or after it.
            self.clock_was_set()
            self._take(Window.of(samples, self._origin))
            self._forget()

    def clock_was_set(self) -> None:
        """Forget the windows so far: the next one stands on another line."""
        self._forget()
        self.breaks += 1

    def curve(self) -> Curve:
        """Return what is known.

        Raises
        ------
        UsageError
            Nothing is: no window had packets of both directions.
        """
        if self._origin is None or not len(self._knots):
            raise UsageError("The clocks have not been compared yet", "Wait for probes of both directions")
        curve = self._knots.curve(*self._domains, self._origin, self._wander)
        return replace(curve, contradictory=self.contradictory)

    def _forget(self) -> None:
        self._windows = []
        self._knots.end()

    def _take(self, window: Window) -> None:
        windows = [*self._windows[-self._horizon + 1 :], window]
        block = Block.of(windows, self._wander)
        if block is None and two_sided(windows):
            windows = [window]
            block = Block.of(windows, self._wander)
            if block is None and window.two_sided:
                self.contradictory += 1
                return
            self.clock_was_set()
        self._windows = windows
        if block is not None:
            at = np.array([window.ends_ns[1]])
            self._knots.add(at, block.along(at))


def contradicts(windows: list[Window], wander: float) -> bool:
    """Tell whether no line fits windows; packets of one direction alone never contradict each other."""
    return two_sided(windows) and Block.of(windows, wander) is None


def two_sided(windows: list[Window]) -> bool:
    """Tell whether there are packets of both directions."""
    return any(len(window.upper.at_ns) for window in windows) and any(len(window.lower.at_ns) for window in windows)
