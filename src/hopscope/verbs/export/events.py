# SPDX-License-Identifier: Apache-2.0
"""The events of a recording that are no ends of intervals: on which track each is, and what it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace import events
from hopscope.trace.names import points
from hopscope.verbs.export.labels import Labels
from hopscope.verbs.export.tracks import tracks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.verbs.export.timeline import I64
    from hopscope.verbs.export.tracks import Place

# Points in the thread that called; others may be in any that a softirq interrupted.
_BY_CALLER: Final = ("call.enter", "tx.send", "tx.sent", "rx.read", "rx.received")
# What intervals show.
_AS_SLICES: Final = ("softirq.enter", "softirq.exit", "irq.enter", "irq.exit", "sched.switch", "sched.wake")
# The tables, and what a timeline has as an event's number.
NUMBERS: Final = {"packets": "len_bytes", "sockets": "len_bytes", "cpu": "value", "tcp": "snd_cwnd"}
_FEW: Final = 8
_WITH_FLOW: Final = ("packets", "sockets", "tcp")


class Events:
    """The selected events.

    Parameters
    ----------
    place
        Whose they are; :func:`hopscope.trace.events.prepare` has been called for its selection.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        numbers = points(place.trace)
        self._by_caller = [numbers[name] for name in _BY_CALLER if name in numbers]
        self._as_slices = ", ".join(str(numbers.get(name, -1)) for name in _AS_SLICES)
        names = place.timeline.names
        # One more, for numbers that have no name.
        self._names = np.full(max(numbers.values(), default=0) + 2, names.place("?"), np.int32)
        self._names[list(numbers.values())] = names.places(numbers)
        self._flows: tuple[Labels, I64] | None = None

    def read(self, table: str, window: str, *more: str, order: str = "") -> dict[str, NDArray[Any]]:
        """Return ``time_ns`` and what :meth:`track` and :meth:`name` need of the events in a window, and more."""
        whose = ("tid",) if table == "sockets" else ()
        rows = events.rows(self._place.trace, self._place.selection, table, window)
        unsliced = f" WHERE point NOT IN ({self._as_slices})" if table == "cpu" else ""
        columns = ", ".join(("time_ns", "cpu", "point", *whose, *more))
        found = self._place.trace.columns(f"SELECT {columns} FROM ({rows}) e{unsliced} {order}")
        return {name: np.ma.getdata(column) for name, column in found.items()}

    def flow(self, table: str) -> tuple[str, ...]:
        """Return the column that :meth:`flow_name` needs, if the table has it."""
        return ("flow",) if table in _WITH_FLOW else ()

    def track(self, rows: dict[str, NDArray[Any]]) -> I64:
        """Return the track of each: of its CPU, or of the thread that called."""
        track = self._place.of_cpus(rows["cpu"])
        if "tid" not in rows:
            return track
        by_caller = np.isin(rows["point"], self._by_caller)
        return np.where(by_caller, tracks_of(self._place.threads, rows["tid"], track), track)

    def by_track(self, rows: dict[str, NDArray[Any]]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Give each track that there is something on, and the places of what is."""
        if "tid" not in rows:
            cpu = rows["cpu"].view(np.uint16)
            cpus = np.flatnonzero(np.bincount(cpu)).astype(np.uint16)
            tracks = self._place.of_cpus(cpus.view(np.int16)).tolist()
            if len(set(tracks)) == len(tracks) <= _FEW:
                # So few are found faster than all are sorted.
                yield from ((track, np.flatnonzero(cpu == each)) for track, each in zip(tracks, cpus, strict=True))
                return
        track = self.track(rows)
        order = np.argsort(track.astype(np.uint16) if track.max() < 1 << 16 else track, kind="stable")
        for each in np.split(order, np.flatnonzero(np.diff(track[order])) + 1):
            yield int(track[each[0]]), each

    def name(self, rows: dict[str, NDArray[Any]]) -> NDArray[np.int32]:
        """Return the place of each one's name."""
        found: NDArray[np.int32] = self._names.take(rows["point"].view(np.uint16), mode="clip")
        return found

    def flow_name(self, rows: dict[str, NDArray[Any]]) -> I64:
        """Return the place of the name of each one's flow; 0: it has none."""
        if "flow" not in rows:
            return np.zeros(len(rows["time_ns"]), np.int64)
        labels, places = self._labels()
        return places[labels.places(rows["flow"])]

    def first_of_flows(self, text: str, after_ns: int) -> tuple[int, int, int] | None:
        """Return time, track and name of the first event after a time in whose flow's name a text is."""
        flows = self._labels()[0].numbers_with(text)
        if not flows:
            return None
        window = f"time_ns > {after_ns} AND flow IN ({', '.join(map(str, flows))})"
        found = []
        for table in _WITH_FLOW:
            rows = self.read(table, window, order="ORDER BY time_ns LIMIT 1")
            if len(rows["time_ns"]):
                found.append((int(rows["time_ns"][0]), int(self.track(rows)[0]), int(self.name(rows)[0])))
        return min(found, default=None)

    def _labels(self) -> tuple[Labels, I64]:
        if self._flows is None:
            labels = Labels.of(self._place.trace, "flow_name")
            self._flows = labels, self._place.timeline.names.places(["", *labels.texts[1:]])
        return self._flows


def add_events(place: Place) -> None:
    """Add the events to a timeline."""
    found = Events(place)
    for first_ns, until_ns in events.each_slice(place.trace, place.selection):
        window = f"time_ns >= {first_ns} AND time_ns < {until_ns} AND {place.selection.window(place.trace)}"
        for table, number in NUMBERS.items():
            rows = found.read(table, window, f"{number} AS number", *found.flow(table))
            place.timeline.add_marks(
                table.removesuffix("s"),
                found.track(rows),
                rows["time_ns"],
                name=found.name(rows),
                detail=found.flow_name(rows),
                number=rows["number"].astype(np.int64),
            )
