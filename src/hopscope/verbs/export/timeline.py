# SPDX-License-Identifier: Apache-2.0
"""A recording as intervals, marks and values on tracks: what timelines draw, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"
Bool: TypeAlias = "NDArray[np.bool_]"
Kind: TypeAlias = Literal["group", "process", "thread", "counter"]


@dataclass(frozen=True, slots=True)
class Track:
    """A row of a timeline.

    Attributes
    ----------
    number
        From 1 on.
    name
        Text.
    kind
        ``group``: of others, or of intervals and marks.
    parent
        Number of the track above; 0: none.
    pid, tid
        Of a process or a thread.
    """

    number: int
    name: str
    kind: Kind
    parent: int = 0
    pid: int = 0
    tid: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Intervals, which are nested in each other on a track; arrays of one length.

    Attributes
    ----------
    track, begin_ns, end_ns
        Where and when; CLOCK_MONOTONIC.
    category, name, detail
        Places in the timeline's names; detail 0: none.
    depth
        In how many others each is, at least among those of the same times.
    number
        A number that belongs to it, such as that of the message.
    """

    track: I64
    begin_ns: I64
    end_ns: I64
    category: I64
    name: I64
    detail: I64
    depth: I64
    number: I64

    def __len__(self) -> int:
        """Return how many."""
        return len(self.track)

    def where(self, chosen: Any) -> Slices:  # noqa: ANN401 # whatever an array can be indexed by
        """Return some of them."""
        return Slices(*(getattr(self, each.name)[chosen] for each in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Moments; arrays of one length.

    Attributes
    ----------
    track, time_ns, category, name, detail, number
        As of :class:`Slices`.
    arrow
        Number of the arrow that comes by here; 0: none.
    last
        Whether the arrow ends here.
    """

    track: I64
    time_ns: I64
    category: I64
    name: I64
    detail: I64
    number: I64
    arrow: NDArray[np.uint64]
    last: Bool

    def __len__(self) -> int:
        """Return how many."""
        return len(self.track)


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values of counters, from a time on."""

    track: I64
    time_ns: I64
    value: I64

    def __len__(self) -> int:
        """Return how many."""
        return len(self.track)


class Names:
    """Texts, each once; number 0 is no text."""

    def __init__(self) -> None:
        self.texts = [""]
        self._places = {"": 0}

    def place(self, text: str) -> int:
        """Return the number of a text, which is new or not."""
        found = self._places.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def places(self, texts: Iterable[str]) -> I64:
        """Return the numbers of texts."""
        return np.array([self.place(text) for text in texts], np.int64)


@dataclass(slots=True)
class Timeline:
    """All of it.

    Attributes
    ----------
    title
        What it is of.
    realtime_ns
        CLOCK_REALTIME when CLOCK_MONOTONIC was 0.
    tracks
        Parents come before those below them.
    notes
        Sentences on what is missing.
    """

    title: str
    started_ns: int
    realtime_ns: int
    names: Names = field(default_factory=Names)
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slices] = field(default_factory=list)
    marks: list[Marks] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def track(self, name: str, kind: Kind = "group", parent: int = 0, pid: int = 0, tid: int = 0) -> int:
        """Add a track, and return its number."""
        self.tracks.append(Track(len(self.tracks) + 1, name, kind, parent, pid, tid))
        return len(self.tracks)

    def add_slices(self, category: str, track: I64, begin_ns: I64, end_ns: I64, **more: I64 | int) -> None:
        """Add intervals; `more` are names, details and so on, one of each or one for all."""
        given = {"name": 0, "detail": 0, "depth": 0, "number": 0, "category": self.names.place(category), **more}
        wide = {name: np.broadcast_to(np.asarray(value, np.int64), len(track)) for name, value in given.items()}
        self.slices.append(Slices(track, begin_ns, end_ns, **wide))

    def add_marks(self, category: str, track: I64, time_ns: I64, **more: NDArray[Any] | int) -> None:
        """Add moments, as :meth:`add_slices` adds intervals."""
        count = len(track)
        none = {"arrow": np.zeros(count, np.uint64), "last": np.zeros(count, bool)}
        given = {"name": 0, "detail": 0, "number": 0, "category": self.names.place(category), **none, **more}
        wide = {
            name: value if isinstance(value, np.ndarray) else np.broadcast_to(np.asarray(value, np.int64), count)
            for name, value in given.items()
        }
        self.marks.append(Marks(track, time_ns, **wide))  # type: ignore[arg-type] # arrow and last have their own types


def lanes(group: I64, begin_ns: I64, end_ns: I64) -> I64:
    """Return a lane for each interval, so that no two overlap on a lane of a group; the fewest lanes that can be.

    What begins takes the lane that has been free for longest. The r-th reuse of a lane is of that of the r-th interval
    to end, so that no loop over intervals is needed: each has the lane of the one before it.
    """
    found, place = np.zeros(len(group), np.int64), np.empty(len(group), np.int64)
    order = np.lexsort((begin_ns, group))
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []:
        ends = rows[np.argsort(end_ns[rows], kind="stable")]
        ended = np.searchsorted(end_ns[ends], begin_ns[rows], side="right")
        count = np.maximum.accumulate(np.arange(1, len(rows) + 1) - ended)
        is_new = np.diff(count, prepend=0) > 0
        reused = np.arange(len(rows)) + 1 - count
        place[rows] = np.arange(len(rows))
        before = np.where(is_new, np.arange(len(rows)), place[ends[np.maximum(reused - 1, 0)]])
        while not np.array_equal(further := before[before], before):
            before = further
        found[rows] = count[before] - 1
    return found


def interleaved(slices: Sequence[Slices]) -> tuple[Slices, I64, Bool]:
    """Return slices together, and their begins and ends in order of time: whose it is, and whether it begins.

    Of those at one time on a track, what is inside ends first, and begins last.
    """
    merged = together(slices)
    count = len(merged)
    whose = np.concatenate((np.arange(count), np.arange(count)))
    begins = np.repeat((True, False), count)
    time_ns = np.concatenate((merged.begin_ns, merged.end_ns))
    other = np.concatenate((-merged.end_ns, -merged.begin_ns))
    depth = np.where(begins, 1, -1) * np.concatenate((merged.depth, merged.depth))
    order = np.lexsort((depth, other, begins, time_ns, merged.track[whose]))
    return merged, whose[order], begins[order]


def together(slices: Sequence[Slices]) -> Slices:
    """Return all slices as one."""
    return Slices(*(np.concatenate([getattr(part, each.name) for part in slices]) for each in fields(Slices)))


def nested(slices: Slices) -> Slices:
    """Return the slices without those that overlap others in part, as they do where events between were lost."""
    while len(slices):
        _, whose, begins = interleaved([slices])
        # So many are open before each begins, and must be after it has ended. Those of a track all end there.
        depth = np.cumsum(np.where(begins, 1, -1))
        before, after = np.empty(len(slices), np.int64), np.empty(len(slices), np.int64)
        before[whose[begins]] = depth[begins] - 1
        after[whose[~begins]] = depth[~begins]
        if (before == after).all():
            break
        slices = slices.where(before == after)
    return slices
