# SPDX-License-Identifier: Apache-2.0
"""A histogram in a few characters: where its values lie on a logarithmic axis that all rows of a table share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.histogram import OVERFLOW_SLOT, SLOTS, ZERO_SLOT, upper_bounds_s
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import Histogram

BAR_WIDTH: Final = 10
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = " .:-=+*%#"

_LEVELS = len(BLOCKS) - 1
_PER_OCTAVE = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """Slots `first` up to but without `end`, whole doublings of the time, spread over `width` characters."""

    first: int
    end: int
    width: int

    @classmethod
    def of(cls, histograms: Sequence[Histogram], width: int) -> Axis:
        """Return the shortest axis of whole doublings that holds all samples and gives each character a slot."""
        used = np.flatnonzero(np.sum([histogram.counts for histogram in histograms], axis=0))
        low, high = (int(used[0]), int(used[-1])) if len(used) else (ZERO_SLOT, ZERO_SLOT)
        first = max(low - 1, 0) // _PER_OCTAVE * _PER_OCTAVE + 1 if low else ZERO_SLOT
        end = min(-(-max(high, 1) // _PER_OCTAVE) * _PER_OCTAVE + 1, SLOTS)
        if end - first < width:
            end = min(first + -(-width // _PER_OCTAVE) * _PER_OCTAVE, SLOTS)
            first = min(first, end - width)
        return cls(first, end, width)

    def title(self, *, unicode: bool) -> str:
        """Return the axis' ends with one digit; its lower end only where both fit."""
        low = fmt.time(self._bound_ns(self.first - 1), unicode=unicode, digits=1) if self.first else "0"
        if self.end == SLOTS:
            high = ">" + fmt.time(self._bound_ns(OVERFLOW_SLOT - 1), unicode=unicode, digits=3)
        else:
            high = fmt.time(self._bound_ns(self.end - 1), unicode=unicode, digits=1)
        room = self.width - len(low) - len(high)
        return low + " " * room + high if room > 0 else high.rjust(self.width)

    def bar(self, histogram: Histogram, *, unicode: bool) -> str:
        """Return the samples' places, the fullest character at full height; a single sample is still seen."""
        blocks = BLOCKS if unicode else ASCII_BLOCKS
        slots = np.arange(self.end - self.first)
        cells = np.zeros(self.width, np.int64)
        np.add.at(cells, slots * self.width // len(slots), histogram.counts[self.first : self.end])
        most = int(cells.max())
        if not most:
            return " " * self.width
        return "".join(blocks[-(-cell * _LEVELS // most)] for cell in cells.tolist())

    @staticmethod
    def _bound_ns(slot: int) -> float:
        return float(upper_bounds_s()[slot]) * 1e9
