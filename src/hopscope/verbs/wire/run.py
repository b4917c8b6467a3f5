# SPDX-License-Identifier: Apache-2.0
"""Record, select, and send what is selected as frames, until it is enough."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import numpy as np

from hopscope.gate import tell
from hopscope.live.recorder.tables import table_of
from hopscope.live.stop import stop_on_signal
from hopscope.live.stream.events import Assembler
from hopscope.live.stream.hops import forgotten_note
from hopscope.live.wire.frames import Frames
from hopscope.live.wire.layout import ETHERTYPE
from hopscope.model.event_batch import Numbers, Texts, selected
from hopscope.model.event_fields import event_condition
from hopscope.store.schema import TEXT
from hopscope.term.format import plural
from hopscope.verbs.wire.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.live.stop import Stop
    from hopscope.live.stream.events import Events
    from hopscope.store.meta import Metadata

# Between looks at the rings.
_LOOK_S: Final = 0.04
_CATALOGUE_S: Final = 1.0
# For what is found in a look; then the rings come first.
_SENDING_S: Final = 0.5
# Whose frames, of 130 bytes, stay in a CPU's cache from when they are made to when they are sent.
_AT_ONCE: Final = 1 << 13
# What our sending makes CPUs and sockets do, and tracepoints pass: to send that, too, would have no end.
_OF_PROCESSES: Final = ("cpu", "sockets")
_LAST_NS: Final = (1 << 63) - 1


class Source(Protocol):
    """Where events come from: what :class:`~hopscope.live.recorder.collector.Recorder` offers, once entered."""

    started_ns: int
    lost: int
    ended: bool
    behind: bool

    def not_granted(self) -> list[str]:
        """Return points that cannot be attached."""

    def notes(self) -> list[str]:
        """Return sentences on what is missing."""

    def metadata(self) -> Metadata:
        """Return what a recording would say of itself."""

    def now_ns(self) -> int:
        """Return the time, by the clock of its events."""

    def read(self) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
        """Yield the rows that came since the last call."""

    def stop(self) -> None:
        """Have the next :meth:`read` give the rest."""


class Wanted(NamedTuple):
    """What is sent.

    Attributes
    ----------
    where
        The condition; None: all events.
    full
        All columns.
    duration_s
        How long; None: until a signal comes, or there is no more.
    live
        Whether events are of this host, and come whether the interface takes them or not.
    """

    where: str | None
    full: bool
    duration_s: float | None
    live: bool = True


def run(source: AbstractContextManager[Source], interface: str, wanted: Wanted) -> int:
    """Send events until a signal comes or the time is over; say at the end how many.

    Raises
    ------
    HopscopeError
        Nothing can be recorded, the condition is none, or there is no such interface, or no more.
    """
    with stop_on_signal() as stop, Link(interface) as link, source as recorder:
        if missing := recorder.not_granted():
            tell(f"not granted by this kernel: {', '.join(missing)} (`hopscope probes` says why)")
        for note in recorder.notes():
            tell(note)
        with Sending(recorder, link, wanted) as sending:
            sys.stderr.write(f"Sending events to {interface} as frames of EtherType {ETHERTYPE:#06x}\n")
            sending.until(stop, wanted.duration_s)
        sys.stderr.write(f"{sending.summary()}\n")
    return 0


class Sending:
    """Takes a recorder's events and sends those that are selected.

    Parameters
    ----------
    recorder
        Attached.
    link
        Entered.
    wanted
        What is sent.
    """

    def __init__(self, recorder: Source, link: Link, wanted: Wanted) -> None:
        self._recorder, self._link = recorder, link
        metadata = recorder.metadata()
        self._assembler = Assembler(metadata)
        self._condition = event_condition(wanted.where, self._assembler.known) if wanted.where else None
        numbers = {name: number for number, name in metadata.points.items()}
        names = self._assembler.point_names
        self._of_processes = np.array(
            [name not in numbers or table_of(numbers[name]) in _OF_PROCESSES for name in names] + [False]
        )
        tables = [table for table in metadata.tables if table.name in names]
        self._own_texts = {column.name for table in tables for column in table.columns if column.dtype == TEXT}
        self._frames = Frames(metadata, names, link.near, link.far, full=wanted.full)
        self._thread = threading.get_native_id() if wanted.live else -1
        self._sending_s = _SENDING_S if wanted.live else float("inf")
        self._drained_ns = recorder.started_ns
        self._catalogue_s = 0.0

    def __enter__(self) -> Self:
        self._assembler.follow()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._assembler.close()

    def until(self, stop: Stop, duration_s: float | None) -> None:
        """Send until it is time."""
        end_s = time.monotonic() + duration_s if duration_s else float("inf")
        self._describe()
        while not stop.wait(self._rest_s(end_s)) and time.monotonic() < end_s:
            complete_ns, self._drained_ns = self._drained_ns, self._recorder.now_ns()
            self._look(complete_ns)
            if time.monotonic() >= self._catalogue_s:
                self._describe()
            if self._recorder.ended:
                break
        self._recorder.stop()
        self._look(_LAST_NS)
        self._describe()

    def summary(self) -> str:
        """Return what was sent, and what was not."""
        said = f"{plural(self._link.sent, 'event')} sent to {self._link.interface}"
        if self._link.not_sent:
            said += f"; {self._link.not_sent:,} not sent, because its queue was full"
        if self._recorder.lost:
            said += f"; {self._recorder.lost:,} lost, because the recording's rings were full"
        if self._assembler.forgotten:
            said += f"; {forgotten_note(self._assembler.forgotten)}"
        return said

    def _rest_s(self, end_s: float) -> float:
        return 0 if self._recorder.behind else min(_LOOK_S, max(end_s - time.monotonic(), 0))

    def _look(self, complete_ns: int) -> None:
        for table, columns in self._recorder.read():
            self._assembler.add(table, columns)
        until_s = time.monotonic() + self._sending_s
        events = self._assembler.ready(complete_ns)
        for piece in events.pieces(_AT_ONCE) if len(events) else ():
            self._link.send(self._frames.of(piece, self._chosen(piece)), until_s)

    def _chosen(self, events: Events) -> NDArray[np.bool_]:
        chosen = ~self._own(events)
        return chosen if self._condition is None else chosen & selected(self._condition, events)

    def _own(self, events: Events) -> NDArray[np.bool_]:
        """Return which events are of what this thread, which sends, did itself, or name the interface."""
        points, threads = events.column("point"), events.column("tid")
        assert isinstance(points, Texts)  # noqa: S101 # for the type checker
        assert isinstance(threads, Numbers)  # noqa: S101 # for the type checker
        own: NDArray[np.bool_] = self._of_processes[points.codes] & (threads.values == self._thread)
        for _, columns, places in events.tables():
            for name in self._own_texts & columns.keys():
                own[places] |= columns[name] == self._link.interface
        return own

    def _describe(self) -> None:
        self._catalogue_s = time.monotonic() + _CATALOGUE_S
        counts = self._link.sent, self._link.not_sent, self._recorder.lost
        for frame in self._frames.catalogue(counts, self._assembler.names, self._recorder.now_ns()):
            self._link.send_one(frame)
