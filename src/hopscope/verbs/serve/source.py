# SPDX-License-Identifier: Apache-2.0
"""The process that records for subscribers, as root: rows go to the process that talks to them, as they come.

It is asked for points and tracepoints, and for nothing else. What nobody needs is not attached; where more is needed,
another recorder is attached before the one that runs is detached, and no event is missing or twice in between.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
import threading
import time
from dataclasses import dataclass, field
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from hopscope.errors import HopscopeError
from hopscope.live.lookup import record_options
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import PROFILES
from hopscope.verbs.serve.beats import beat

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from hopscope.store.meta import Metadata

# Between looks at the rings; while nothing is recorded, between signs of life.
LOOK_S: Final = 0.04
_IDLE_S: Final = 1.0
_LONGEST: Final = 1 << 20
HEAD: Final = struct.Struct("=Q")


# Named points and profiles, the points by which packets are followed, and tracepoints.
Needed: TypeAlias = tuple[frozenset[str], frozenset[str], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Began:
    """A recorder is attached; events from a time on are of it."""

    number: int
    from_ns: int
    covers: Needed
    metadata: Metadata
    not_granted: list[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked for cannot be recorded."""

    number: int
    what: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of tables, and the time before which all are there."""

    complete_ns: int
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def record(line: socket.socket, beats: socket.socket, filters: Mapping[str, Any], ring_bytes: int) -> None:
    """Record what the other side asks for, until it has ended.

    Parameters
    ----------
    line
        To the other side: from it come lines of JSON, to it go pickled messages with their length before them.
    beats
        See :func:`~hopscope.verbs.serve.beats.beat`.
    filters
        Arguments of :func:`~hopscope.live.lookup.record_options`: which traffic.
    ring_bytes
        Size of each CPU's ring.
    """
    with _Source(line, beats, filters, ring_bytes) as source:
        while source.look():
            pass


class _Source:
    def __init__(self, line: socket.socket, beats: socket.socket, filters: Mapping[str, Any], ring_bytes: int) -> None:
        self._line = line
        self._beats = beats
        self._filters = filters
        self._ring_bytes = ring_bytes
        self._stack = contextlib.ExitStack()
        self._recorder: Recorder | None = None
        self._drained_ns = self._complete_ns = self._from_ns = 0
        self._starting: threading.Thread | None = None
        self._started: tuple[dict[str, Any], Recorder | HopscopeError, contextlib.ExitStack] | None = None
        self._wanted: dict[str, Any] | None = None
        self._heard = b""
        self._poll = poll()
        self._poll.register(line, POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._starting:
            self._starting.join()
            if self._started:
                self._started[2].close()
        self._stack.close()

    def look(self) -> bool:
        """Take what has come, and do what is asked; say whether to go on."""
        busy = self._recorder or self._starting
        for _, _ in self._poll.poll((LOOK_S if busy else _IDLE_S) * 1e3):
            data = self._line.recv(_LONGEST)
            if not data:
                return False
            *lines, self._heard = (self._heard + data).split(b"\n")
            for text in lines:
                self._wanted = json.loads(text)
        if self._starting and not self._starting.is_alive():
            self._switch()
        if self._wanted is not None and not self._starting:
            self._begin(self._wanted)
            self._wanted = None
        if self._recorder:
            self._drain(self._recorder)
        beat(self._beats)
        return True

    def _begin(self, wanted: dict[str, Any]) -> None:
        """Attach what is wanted beside what is attached; with nothing wanted, detach."""
        if not wanted["points"] and not wanted["events"]:
            if self._recorder:
                self._drain(self._recorder)
            self._stack.close()
            self._recorder = None
            return

        def start() -> None:
            stack = contextlib.ExitStack()
            try:
                options = record_options(
                    **self._filters,
                    ways=(),
                    profiles=[name for name in wanted["points"] if name in PROFILES],
                    points=[name for name in wanted["points"] if name not in PROFILES],
                    optional=wanted["optional"],
                    tracepoints=wanted["events"],
                    ring_bytes=self._ring_bytes,
                )
                self._started = wanted, stack.enter_context(Recorder(options)), stack
            except HopscopeError as error:
                self._started = wanted, error, stack

        self._starting = threading.Thread(target=start, name="hopscope-attach")
        self._starting.start()

    def _switch(self) -> None:
        """Go over to the recorder that is attached by now."""
        self._starting = None
        if self._started is None:
            raise HopscopeError("A recorder could not be attached", "Please report it")
        wanted, found, stack = self._started
        number = int(wanted["number"])
        self._started = None
        if isinstance(found, HopscopeError):
            stack.close()
            self._send(Refused(number, str(found), found.exit_code))
            return
        # What the one that ends has given as complete is not taken once more of the other.
        self._from_ns = max(found.started_ns, self._complete_ns)
        if self._recorder:
            self._recorder.stop()
            self._drain(self._recorder)
        self._stack.close()
        self._stack, self._recorder, self._drained_ns = stack, found, self._from_ns
        points, path, events = (frozenset(wanted[name]) for name in ("points", "optional", "events"))
        self._send(Began(number, self._from_ns, (points, path, events), found.metadata(), found.not_granted()))

    def _drain(self, recorder: Recorder) -> None:
        """Send what is in the rings."""
        complete_ns, self._drained_ns = self._drained_ns, time.monotonic_ns()
        self._complete_ns = complete_ns
        self._send(Rows(complete_ns, list(recorder.rows(recorder.take()))))

    def _send(self, message: Began | Refused | Rows) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._line.sendall(HEAD.pack(len(data)))
        self._line.sendall(data)


def messages(line: socket.socket) -> Iterator[Began | Refused | Rows]:
    """Yield what the recording process sends, until it has ended."""
    with line.makefile("rb", buffering=1 << 20) as file:
        while head := file.read(HEAD.size):
            # It comes from the process that started this one, and has more rights.
            yield pickle.loads(file.read(HEAD.unpack(head)[0]))  # noqa: S301
