# SPDX-License-Identifier: Apache-2.0
"""Moments of a view of the timeline, in strips: those of one kind in one row, in order of time.

Of a recording's events, of which there may be very many, only times and probe points are kept; the names of flows are
read for a view that has few of them, when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.verbs.export.events import NUMBERS, Events
from hopscope.verbs.web.timeline_rows import present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.verbs.export.timeline import I64, Marks, Timeline
    from hopscope.verbs.export.tracks import Place
    from hopscope.verbs.web.timeline_rows import Rows, Texts, View

# Marks, intervals and arrows of a picture; where there are more, several columns are counted together.
MOST: Final = 20_000
# Events of a view of which flows are read.
_MOST_WITH_FLOWS: Final = 100_000
Strips: TypeAlias = list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """What is of one kind in one row; arrays of one length, in order of time.

    Attributes
    ----------
    row, kind
        Where, and of what kind.
    time_ns
        CLOCK_MONOTONIC.
    name, detail
        Places in the timeline's texts; detail None: of none.
    """

    row: int
    kind: str
    time_ns: I64
    name: NDArray[np.integer[Any]]
    detail: NDArray[np.integer[Any]] | None = None

    def between(self, from_ns: int, until_ns: int) -> tuple[int, int]:
        """Return the places of the first one in a period, and after the last."""
        first, end = np.searchsorted(self.time_ns, (from_ns, until_ns)).tolist()
        return first, end


class RecordedEvents:
    """The events of a recording's tables as strips.

    Parameters
    ----------
    place
        Whose they are.
    rows
        Of the picture.
    """

    def __init__(self, place: Place, rows: Rows) -> None:
        self._selected = place.selection.window(place.trace)
        self._rows = rows
        self._events = Events(place)
        self.strips = list(self._read(self._selected, with_flows=False))

    def are_few(self, view: View) -> bool:
        """Return whether there are some events in a view, and few enough to read their flows."""
        inside = [each.between(view.from_ns, view.until_ns) for each in self.strips]
        return 0 < sum(end - first for first, end in inside) <= _MOST_WITH_FLOWS

    def with_flows(self, view: View) -> dict[tuple[int, str], Strip]:
        """Return the events of a view with the names of their flows, by row and kind."""
        window = f"{self._selected} AND time_ns >= {view.from_ns} AND time_ns < {view.until_ns}"
        return {(each.row, each.kind): each for each in self._read(window, with_flows=True)}

    def first_of_flows(self, text: str, after_ns: int) -> tuple[int, int, int] | None:
        """Return time, row and name of the first event after a time in whose flow's name a text is; None: none."""
        found = self._events.first_of_flows(text, after_ns)
        return (found[0], int(self._rows.of(np.array([found[1]]))[0]), found[2]) if found else None

    def _read(self, window: str, *, with_flows: bool) -> Iterator[Strip]:
        for table in NUMBERS:
            rows = self._events.read(table, window, *(self._events.flow(table) if with_flows else ()))
            if not len(rows["time_ns"]):
                continue
            detail = self._events.flow_name(rows) if with_flows else None
            marks = Strip(0, table.removesuffix("s"), rows["time_ns"], self._events.name(rows), detail)
            for track, which in self._events.by_track(rows):
                yield _ordered(int(self._rows.of(np.array([track]))[0]), marks, which)


class MarkLayer:
    """Moments.

    Parameters
    ----------
    found
        The timeline.
    rows
        Of the picture.
    events
        What a recording has besides; None: nothing.
    """

    def __init__(self, found: Timeline, rows: Rows, events: RecordedEvents | None) -> None:
        self._events = events
        self._strips = [*(events.strips if events else ()), *_strips_of(found, rows)]
        self.strips: Strips = [(each.row, 0, each.kind) for each in self._strips]

    def extent(self) -> tuple[int, int] | None:
        """Return the first and the last time; None: there is none."""
        ends = [(int(each.time_ns[0]), int(each.time_ns[-1])) for each in self._strips]
        return (min(first for first, _ in ends), max(last for _, last in ends)) if ends else None

    def seen(self, view: View, used: Texts, *, with_flows: bool) -> dict[str, Any]:
        """Return a count for each cell, which is a strip and a column, and the first mark in it.

        ``has_flows`` says that an answer with flows would have more.
        """
        cells = [_cells(each, view) for each in self._strips]
        while (found := sum(len(column) for column, _, _ in cells)) > MOST and view.columns > 1:
            view = view.coarser(found, MOST)
            cells = [_cells(each, view) for each in self._strips]
        are_few = self._events is not None and self._events.are_few(view)
        named = self._events.with_flows(view) if self._events and are_few and with_flows else {}
        answer: dict[str, Any] = {"columns": view.columns, "has_flows": are_few and not with_flows}
        answer |= {name: [] for name in ("strip", "column", "count", "at", "name", "detail")}
        for number, (strip, (column, first, count)) in enumerate(zip(self._strips, cells, strict=True)):
            answer["strip"] += [number] * len(column)
            answer["column"] += column.tolist()
            answer["count"] += count.tolist()
            answer["at"] += (strip.time_ns[first] - view.from_ns).tolist()
            answer["name"] += used.places(strip.name[first])
            answer["detail"] += used.places(_details(strip, first, view, named))
        return answer

    def after(self, matching: NDArray[np.bool_], text: str, after_ns: int) -> tuple[int, int, int] | None:
        """Return time, row and name of the next one with one of these names, or whose flow has the text in its name."""
        found = [each for strip in self._strips if (each := _after(strip, matching, after_ns))]
        if self._events and (of_flow := self._events.first_of_flows(text, after_ns)):
            found.append(of_flow)
        return min(found, default=None)


def _cells(strip: Strip, view: View) -> tuple[I64, I64, I64]:
    """Return column, place of the first mark and number of marks of each column that has any."""
    first, end = strip.between(view.from_ns, view.until_ns)
    if end - first > view.columns:
        at = first + np.searchsorted(strip.time_ns[first:end], view.edges())
        count = np.diff(at)
        column = np.flatnonzero(count)
        return column, at[column], count[column]
    columns = view.column(strip.time_ns[first:end])
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    return columns[starts], first + starts, np.diff(starts, append=end - first)


def _details(strip: Strip, first: I64, view: View, named: dict[tuple[int, str], Strip]) -> NDArray[np.integer[Any]]:
    """Return the places of details of some marks of a strip in the view."""
    if (found := named.get((strip.row, strip.kind))) and found.detail is not None:
        begin, _ = strip.between(view.from_ns, view.until_ns)
        return found.detail[first - begin]
    return np.zeros(len(first), np.int64) if strip.detail is None else strip.detail[first]


def _after(strip: Strip, matching: NDArray[np.bool_], after_ns: int) -> tuple[int, int, int] | None:
    """Return time, row and name of the next one of these names."""
    from_ = int(np.searchsorted(strip.time_ns, after_ns, side="right"))
    is_hit = matching[strip.name[from_:]]
    if strip.detail is not None:
        is_hit |= matching[strip.detail[from_:]]
    if not is_hit.any():
        return None
    at = from_ + int(is_hit.argmax())
    return int(strip.time_ns[at]), strip.row, int(strip.name[at])


def _ordered(row: int, marks: Strip, which: NDArray[np.intp]) -> Strip:
    """Return some marks of a kind, which are those of a row."""
    # What each CPU recorded is nearly in order already, which this sort makes use of.
    time_ns = marks.time_ns[which]
    order = np.argsort(time_ns, kind="stable")
    which = which[order]
    detail = None if marks.detail is None else marks.detail[which]
    return Strip(row, marks.kind, time_ns[order], marks.name[which], detail)


def _strips_of(found: Timeline, rows: Rows) -> Iterator[Strip]:
    """Give the marks of a timeline, but for those by which arrows come."""
    by_kind: dict[str, list[Marks]] = {}
    for part in found.marks:
        if len(part) and (kind := found.names.texts[int(part.category[0])]) != "arrow":
            by_kind.setdefault(kind, []).append(part)
    for kind, parts in by_kind.items():
        track, *columns = (
            np.concatenate([getattr(each, name) for each in parts]) for name in ("track", "time_ns", "name", "detail")
        )
        row = rows.of(track)
        for each in present(row):
            yield _ordered(each, Strip(0, kind, *columns), np.flatnonzero(row == each))
