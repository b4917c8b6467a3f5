# SPDX-License-Identifier: Apache-2.0
"""Intervals and arrows of a view of the timeline, each sorted once and found by binary search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.verbs.web.timeline_marks import MOST
from hopscope.verbs.web.timeline_rows import LANES, LINES, places, present

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.verbs.export.timeline import I64, Marks, Slices, Timeline
    from hopscope.verbs.web.timeline_marks import Strips
    from hopscope.verbs.web.timeline_rows import Rows, Texts, View

_MOST_ARROWS: Final = 4_000
# What is drawn only where nothing else is.
_WEAK: Final = ("asleep", "stopped")
# The marks by which an arrow comes, in order.
_STOPS: Final = ("send", "transmit", "receive", "read")
_CATEGORIES: Final = 16


class SpanLayer:
    """Intervals, by their begin."""

    def __init__(self, found: Timeline, rows: Rows) -> None:
        parts = [each for each in found.slices if len(each)]
        track, category, depth = (_joined(parts, name) for name in ("track", "category", "depth"))
        line = np.where(_named(found, category, LANES), rows.line(track), np.minimum(depth, LINES - 1))
        kinds = present(category)
        key = (rows.of(track) * LINES + line) * _CATEGORIES + places(kinds, category)
        used = present(key)
        self.strips: Strips = [
            (each // _CATEGORIES // LINES, each // _CATEGORIES % LINES, found.names.texts[kinds[each % _CATEGORIES]])
            for each in used
        ]
        begin_ns = _joined(parts, "begin_ns")
        order = np.argsort(begin_ns, kind="stable")
        self._begin_ns, self._end_ns = begin_ns[order], _joined(parts, "end_ns")[order]
        self._strip = places(used, key)[order]
        self._name, self._detail = (_joined(parts, name, np.int32)[order] for name in ("name", "detail"))
        self._number = _joined(parts, "number")[order]
        self._reach_ns = np.maximum.accumulate(self._end_ns) if len(order) else order
        self._weak = _named(found, self._name, frozenset(_WEAK))

    def extent(self) -> tuple[int, int] | None:
        """Return the first and the last time; None: there is none."""
        return (int(self._begin_ns[0]), int(self._reach_ns[-1])) if len(self._begin_ns) else None

    def seen(self, view: View, used: Texts) -> dict[str, Any]:
        """Return intervals as long as a column, and counts of the shorter ones for each cell."""
        first = int(np.searchsorted(self._reach_ns, view.from_ns, side="right"))
        last = int(np.searchsorted(self._begin_ns, view.until_ns))
        inside = first + np.flatnonzero(self._end_ns[first:last] > view.from_ns)
        long, cells = self._divided(view, inside)
        while len(long) + len(cells[0]) > MOST and view.columns > 1:
            view = view.coarser(len(long) + len(cells[0]), MOST)
            long, cells = self._divided(view, inside)
        strip, column, count, busy_ns, name = cells
        return {
            "columns": view.columns,
            "strip": self._strip[long].tolist(),
            "at": (self._begin_ns[long] - view.from_ns).tolist(),
            "length": (self._end_ns[long] - self._begin_ns[long]).tolist(),
            "name": used.places(self._name[long]),
            "detail": used.places(self._detail[long]),
            "number": self._number[long].tolist(),
            "cell_strip": strip.tolist(),
            "cell_column": column.tolist(),
            "cell_count": count.tolist(),
            "cell_busy": busy_ns.tolist(),
            "cell_name": used.places(name),
        }

    def _divided(self, view: View, inside: I64) -> tuple[I64, tuple[I64, I64, I64, I64, I64]]:
        """Return those as long as a column, and the others by strip and column."""
        length_ns = self._end_ns[inside] - self._begin_ns[inside]
        is_long = length_ns * view.columns >= view.until_ns - view.from_ns
        short, length_ns = inside[~is_long], length_ns[~is_long]
        key = self._strip[short] * view.columns + view.column(self._begin_ns[short])
        size = len(self.strips) * view.columns
        count = np.bincount(key, minlength=size)
        busy_ns = np.bincount(key, weights=length_ns, minlength=size).astype(np.int64)
        name, weak = np.zeros(size, np.int64), self._weak[short]
        for chosen in (weak, ~weak):
            name[key[chosen]] = self._name[short[chosen]]
        cells = np.flatnonzero(count)
        return inside[is_long], (
            cells // view.columns, cells % view.columns, count[cells], busy_ns[cells], name[cells],
        )  # fmt: skip

    def after(self, matching: NDArray[np.bool_], after_ns: int) -> tuple[int, int, int] | None:
        """Return begin, row and name of the next one of these names."""
        first = int(np.searchsorted(self._begin_ns, after_ns, side="right"))
        hit = np.flatnonzero(matching[self._name[first:]] | matching[self._detail[first:]])
        if not len(hit):
            return None
        at = first + int(hit[0])
        return int(self._begin_ns[at]), self.strips[int(self._strip[at])][0], int(self._name[at])


class ArrowLayer:
    """Messages, each from its send call over the CPUs to its read."""

    def __init__(self, found: Timeline) -> None:
        parts = [each for each in found.marks if len(each) and found.names.texts[int(each.category[0])] == "arrow"]
        number, stops = np.unique(_joined(parts, "number"), return_inverse=True)
        self._number = number
        self._time_ns = np.full((len(_STOPS), len(number)), -1, np.int64)
        self._row = np.zeros((len(_STOPS), len(number)), np.int64)
        if not parts:
            self._begin_ns = self._end_ns = self._reach_ns = number
            return
        name, time_ns, track = (_joined(parts, each) for each in ("name", "time_ns", "track"))
        for stop, text in enumerate(_STOPS):
            here = name == found.names.place(text)
            self._time_ns[stop, stops[here]] = time_ns[here]
            self._row[stop, stops[here]] = track[here]
        missing = self._time_ns < 0
        begin_ns = np.where(missing, np.iinfo(np.int64).max, self._time_ns).min(axis=0)
        order = np.argsort(begin_ns, kind="stable")
        self._number, self._time_ns, self._row = number[order], self._time_ns[:, order], self._row[:, order]
        self._begin_ns, self._end_ns = begin_ns[order], self._time_ns.max(axis=0)
        self._reach_ns = np.maximum.accumulate(self._end_ns)

    def seen(self, view: View) -> dict[str, Any]:
        """Return stops (time and row of each; no time: not seen), the message's number, and how many look the same."""
        first = int(np.searchsorted(self._reach_ns, view.from_ns))
        last = int(np.searchsorted(self._begin_ns, view.until_ns))
        inside = first + np.flatnonzero(self._end_ns[first:last] >= view.from_ns)
        chosen, count = inside, np.ones(len(inside), np.int64)
        while len(chosen) > _MOST_ARROWS:
            chosen, count = self._alike(view, inside)
            if view.columns == 1:
                break
            view = view.coarser(max(len(chosen), 1), _MOST_ARROWS)
        time_ns = self._time_ns[:, chosen].tolist()
        return {
            "at": [[None if at < 0 else at - view.from_ns for at in stop] for stop in time_ns],
            "row": self._row[:, chosen].tolist(),
            "number": self._number[chosen].tolist(),
            "count": count.tolist(),
        }

    def _alike(self, view: View, inside: I64) -> tuple[I64, I64]:
        """Return one of those that begin and end in the same columns and rows, and how many these are."""
        ends = view.column(self._begin_ns[inside]), view.column(self._end_ns[inside])
        key = ends[0] * view.columns + ends[1]
        for row in (self._row[0], self._row[-1]):
            key = key * (int(row.max()) + 1) + row[inside]
        _, first, count = np.unique(key, return_index=True, return_counts=True)
        return inside[first], count


def _joined(parts: Sequence[Marks | Slices], name: str, kind: type[np.integer[Any]] = np.int64) -> NDArray[Any]:
    return _together([getattr(each, name) for each in parts], kind)


def _together(arrays: Sequence[NDArray[Any]], kind: type[np.integer[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays, dtype=kind, casting="unsafe") if arrays else np.zeros(0, kind)


def _named(found: Timeline, places: NDArray[np.integer[Any]], names: frozenset[str]) -> NDArray[np.bool_]:
    matching: NDArray[np.bool_] = np.array([each in names for each in found.names.texts])[places]
    return matching
