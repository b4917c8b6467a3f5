# SPDX-License-Identifier: Apache-2.0
"""What the layers of a view of the timeline share: columns of the time axis, rows, and the texts of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace.host_numbers import THREADS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.verbs.export.timeline import I64, Timeline, Track

# Messages that overlap are drawn below each other in so many lines of a row.
LINES: Final = 6
LANES: Final = frozenset({"message", "stage"})


@dataclass(frozen=True, slots=True)
class View:
    """A part of the time axis, [from, until), in columns; ns of CLOCK_MONOTONIC."""

    from_ns: int
    until_ns: int
    columns: int

    def edges(self) -> I64:
        """Return where columns begin, and where the last ends."""
        span = self.until_ns - self.from_ns
        return self.from_ns - (-np.arange(self.columns + 1, dtype=np.int64) * span // self.columns)

    def column(self, time_ns: I64) -> I64:
        """Return the columns of times; the first and last one for those outside."""
        span = self.until_ns - self.from_ns
        inside = np.clip(time_ns - self.from_ns, 0, span - 1)
        return inside * self.columns // span

    def coarser(self, found: int, most: int) -> View:
        """Return a view with so few columns that so much may remain of what was found."""
        return View(self.from_ns, self.until_ns, max(1, min(self.columns // 2, self.columns * most // found)))


class Texts:
    """The texts of one answer."""

    def __init__(self, known: list[str]) -> None:
        self._known = known
        self.texts: list[str] = []
        self._places: dict[int, int] = {}

    def places(self, names: NDArray[np.integer[Any]]) -> list[int]:
        """Return where names are among the texts of the answer, to which they are added."""
        places, inverse = np.unique(names, return_inverse=True)
        for each in places.tolist():
            if each not in self._places:
                self._places[each] = len(self.texts)
                self.texts.append(self._known[each])
        short = np.array([self._places[each] for each in places.tolist()], np.int64)
        listed: list[int] = short[inverse.reshape(-1)].tolist() if len(names) else []
        return listed


class Rows:
    """The rows of the picture: tracks on which something is; the messages of a process are one row."""

    def __init__(self, found: Timeline) -> None:
        self._tracks = {each.number: each for each in found.tracks}
        self._used: set[int] = set()
        lanes = {
            track
            for part in found.slices
            if len(part) and found.names.texts[int(part.category[0])] in LANES
            for track in present(part.track)
        }
        self._row = np.arange(len(found.tracks) + 1)
        self._line = np.zeros(len(found.tracks) + 1, np.int64)
        first: dict[int, int] = {}
        count: dict[int, int] = {}
        for track in sorted(lanes):
            above = self._tracks[track].parent
            self._row[track] = first.setdefault(above, track)
            self._line[track] = count.get(above, 0) % LINES
            count[above] = count.get(above, 0) + 1
        self._lanes = set(first.values())

    def of(self, track: I64) -> I64:
        """Return the rows of tracks, which are shown from now on."""
        found: I64 = self._row[track]
        self._used.update(present(found))
        return found

    def line(self, track: I64) -> I64:
        """Return the lines of tracks in their rows."""
        found: I64 = self._line[track]
        return found

    def listed(self) -> list[tuple[int, str, str, list[int]]]:
        """Return number, name, kind, and what to sort by, of each row."""
        return [self._described(self._tracks[row]) for row in sorted(self._used)]

    def _described(self, track: Track) -> tuple[int, str, str, list[int]]:
        if track.number in self._lanes:
            process = self._tracks.get(track.parent)
            if process is None or process.kind != "process":
                return track.number, "messages", "messages", [1, 0, 0]
            return track.number, f"{process.name} {process.pid % THREADS}: messages", "messages", [1, process.number, 0]
        if track.kind == "thread":
            return track.number, f"{track.name} {track.tid % THREADS}", "task", [1, track.parent, track.number]
        return track.number, track.name, "cpu", [0, 0, track.number]


def present(numbers: I64) -> list[int]:
    """Return the different numbers, in order; none is large."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def places(known: list[int], numbers: I64) -> I64:
    """Return where numbers are among those that there are."""
    place = np.zeros(known[-1] + 1 if known else 1, np.int64)
    place[known] = np.arange(len(known))
    found: I64 = place[numbers]
    return found
