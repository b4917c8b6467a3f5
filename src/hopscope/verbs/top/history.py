# SPDX-License-Identifier: Apache-2.0
"""The hops of the last minutes, for sparklines: the 99th percentile of each in parts of that time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from hopscope.verbs.frames.frame import AREAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import Histogram
    from hopscope.verbs.frames.frame import Frame

# Parts that are kept.
CELLS: Final = 24
_Q: Final = 99


class History:
    """Adds frames up to parts; what is known of a part that has ended is one figure.

    Parameters
    ----------
    frames_per_cell
        How many frames are a part.
    """

    def __init__(self, frames_per_cell: int) -> None:
        self._frames_per_cell = frames_per_cell
        self._seen = 0
        self._ended: dict[str, deque[float | None]] = {}
        self._current: dict[str, Histogram] = {}

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> History:
        """Return the history of a whole recording."""
        made = cls(-(-len(frames) // CELLS) or 1)
        for frame in frames:
            made.add(frame)
        return made

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        if self._seen and self._seen % self._frames_per_cell == 0:
            self._end_cell()
        self._seen += 1
        for area in AREAS:
            for row in frame.hops(area):
                before = self._current.get(row.hop)
                self._current[row.hop] = before + row.histogram if before else row.histogram

    def values(self, hop: str) -> list[float | None]:
        """Return the 99th percentile of each part, in ns, the oldest first; None where there were no samples."""
        current = self._current.get(hop)
        ended = self._ended.get(hop, ())
        return [*ended, current.percentile(_Q) if current else None][-CELLS:]

    def _end_cell(self) -> None:
        cells = (self._seen // self._frames_per_cell) - 1
        for hop in {*self._ended, *self._current}:
            values = self._ended.setdefault(hop, deque([None] * min(cells, CELLS), maxlen=CELLS))
            current = self._current.get(hop)
            values.append(current.percentile(_Q) if current else None)
        self._current = {}
