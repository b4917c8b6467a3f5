# SPDX-License-Identifier: Apache-2.0
"""The process that talks to subscribers: it has no rights, and gets rows from the one that records.

Every subscriber has a queue of its own. Where it is full, whole batches are left out, and how many events of them the
subscriber would have got is counted and comes with the next batch: who does not read harms nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope import __version__
from hopscope.errors import HopscopeError, UsageError
from hopscope.gate import tell
from hopscope.live.stream.events import Assembler, Events
from hopscope.live.stream.hops import forgotten_note
from hopscope.model.event_batch import selected
from hopscope.model.event_fields import event_condition
from hopscope.verbs.serve.encode import encoder
from hopscope.verbs.serve.request import LONGEST, VERSION, parse_request, require_fields
from hopscope.verbs.serve.source import Began, Needed, Refused, Rows, messages

if TYPE_CHECKING:
    import socket

    from numpy.typing import NDArray

    from hopscope.model.condition import Condition
    from hopscope.verbs.serve.encode import Encoder
    from hopscope.verbs.serve.request import Request

# Connections that nobody has accepted yet.
BACKLOG: Final = 1024
# For its one line.
_REQUEST_S: Final = 10.0
_MOST_SUBSCRIBERS: Final = 256
# Handed to a socket at a time, and not yet read by the other side.
_WINDOW_BYTES: Final = 1 << 18
# Events of a batch: it comes before the next ones are made ready.
_AT_ONCE: Final = 1 << 15
_KEPT_BYTES: Final = 256 << 20
# Between two sentences on packets that are not followed.
_SAY_S: Final = 60.0
_NOTHING: Final[Needed] = (frozenset(), frozenset(), frozenset())


class Subscriber:
    """Somebody who gets events.

    Parameters
    ----------
    request
        What it asked for.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._loop = asyncio.get_running_loop()
        self.accepted: asyncio.Future[Began] = self._loop.create_future()
        self.is_answered = False
        self.wake = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        # Each is changed in one thread alone.
        self._put_bytes = self._written_bytes = 0
        self._condition: Condition | None = None
        self._encoder: Encoder | None = None
        self._lost = self._kernel_lost = 0
        self._from_ns = 0

    def answer(self, outcome: Began | HopscopeError) -> None:
        """Say that its events come, or why they do not."""
        self.is_answered = True
        self._loop.call_soon_threadsafe(_settle, self.accepted, outcome)

    def begin(self, assembler: Assembler, from_ns: int) -> None:
        """Be ready for events.

        Raises
        ------
        UsageError
            The condition or a field is of something else than these events have.
        """
        request = self.request
        own = {name: kind for name, kind in assembler.known.own.items() if request.events}
        require_fields(request, set(own))
        if request.where:
            self._condition = event_condition(request.where, assembler.known)
        self._encoder = encoder(request.form, request.fields, own, assembler)
        self._from_ns = from_ns

    def offer(self, events: Events, kernel_lost: int) -> None:
        """Take what is wanted of these events, or count it as lost."""
        if self._encoder is None:
            return
        self._kernel_lost += kernel_lost
        chosen = self._chosen(events) if len(events) else np.zeros(0, bool)
        count = int(np.count_nonzero(chosen))
        if self._put_bytes - self._written_bytes >= self.request.queue_bytes:
            self._lost += count
        elif count or self._lost or self._kernel_lost or self._encoder.is_due():
            self._put(self._encoder.batch(events, chosen, self._lost, self._kernel_lost))
            self._lost = self._kernel_lost = 0

    async def write_to(self, writer: asyncio.StreamWriter) -> None:
        """Write what comes until the other side has gone."""
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                writer.write(data)
                await writer.drain()
                self._written_bytes += len(data)
            self.wake.clear()
            await self.wake.wait()

    def _put(self, data: bytes) -> None:
        self._waiting.append(data)
        self._put_bytes += len(data)
        self._loop.call_soon_threadsafe(self.wake.set)

    def _chosen(self, events: Events) -> NDArray[np.bool_]:
        points = events.column("point")
        wanted = [self.request.wants(name) for name in points.names]  # type: ignore[union-attr] # they are texts
        chosen: NDArray[np.bool_] = np.array([*wanted, False])[points.codes]  # type: ignore[union-attr]
        if self._from_ns:
            times = events.column("time_ns").values  # type: ignore[union-attr] # they are numbers
            chosen &= times >= self._from_ns
        if self._condition is not None and chosen.any():
            chosen &= selected(self._condition, events)
        return chosen


class Publisher:
    """Takes rows, and gives each subscriber its own.

    Parameters
    ----------
    line
        To the process that records.
    keep_s
        How much of what has come is kept for those who ask for what was before.
    """

    def __init__(self, line: socket.socket, keep_s: float) -> None:
        self._line = line
        # Of all below: rows come in one thread, subscribers in others.
        self._lock = threading.Lock()
        self._keep_ns = round(keep_s * 1e9)
        self._kept: deque[tuple[int, Events]] = deque()
        self._kept_bytes = 0
        self._subscribers: list[Subscriber] = []
        self._pending: dict[int, list[Subscriber]] = {}
        self._assembler: Assembler | None = None
        self._began: Began | None = None
        self._covers = self._asked = _NOTHING
        self._number = 0
        self._complete_ns = 0
        self._forgotten, self._say_s = 0, 0.0

    async def serve(self, listening: socket.socket) -> None:
        """Serve until the process that records has ended."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def hear() -> None:
            error: Exception | None = None
            try:
                for message in messages(self._line):
                    with self._lock:
                        self._heard(message)
            except Exception as found:  # noqa: BLE001 # the process ends with it
                error = found
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, over, error)

        # Beside the loop, so that who reads gets data while the next events are made ready.
        threading.Thread(target=hear, name="hopscope-rows", daemon=True).start()
        async with await asyncio.start_unix_server(self._connected, sock=listening, limit=LONGEST, backlog=BACKLOG):
            await over

    # ---- subscribers ----

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=_WINDOW_BYTES)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            try:
                await self._subscribe(reader, writer)
            except HopscopeError as error:
                writer.write(_line({"error": str(error), "exit_code": error.exit_code}))
                await asyncio.wait_for(writer.drain(), _REQUEST_S)
        writer.close()

    async def _subscribe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _REQUEST_S)
        except (ValueError, asyncio.LimitOverrunError):
            raise UsageError(f"The request is longer than {LONGEST:,} bytes") from None
        except TimeoutError:
            raise UsageError("No request came within 10 s", "Send one line of JSON") from None
        if not line:
            return
        request = parse_request(line)
        if len(self._subscribers) >= _MOST_SUBSCRIBERS:
            raise HopscopeError(f"There are {_MOST_SUBSCRIBERS} subscribers already", "Try again later")
        subscriber = Subscriber(request)
        try:
            await asyncio.to_thread(self._add, subscriber)
            began = await subscriber.accepted
            writer.write(_line(_hello(request, began)))
            gone = asyncio.ensure_future(reader.read(1))
            writing = asyncio.ensure_future(subscriber.write_to(writer))
            await asyncio.wait({gone, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (gone, writing):
                task.cancel()
            if writing.done() and not writing.cancelled():
                writing.exception()
        finally:
            await asyncio.to_thread(self._remove, subscriber)

    def _add(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers.append(subscriber)
            self._ask()

    def _remove(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._ask()

    def _ask(self) -> None:
        """Have recorded what subscribers need, where that is not so already."""
        named = frozenset(name for each in self._subscribers for name in each.request.named)
        path = frozenset(name for each in self._subscribers for name in each.request.path)
        events = frozenset(text for each in self._subscribers for text in each.request.events)
        if (named, path, events) != self._asked:
            self._asked = named, path, events
            self._number += 1
            asked = {"points": sorted(named), "optional": sorted(path), "events": sorted(events)}
            self._send({"number": self._number, **asked})
            if not named and not events:
                self._detached()
        for each in self._subscribers:
            if each.is_answered or any(each in waiting for waiting in self._pending.values()):
                continue
            needed = each.request.named, each.request.path, each.request.events
            is_covered = all(mine <= there for mine, there in zip(needed, self._covers, strict=True))
            if is_covered and self._began and self._assembler:
                self._accept(each, self._began, self._assembler)
            else:
                self._pending.setdefault(self._number, []).append(each)

    def _accept(self, subscriber: Subscriber, began: Began, assembler: Assembler) -> None:
        since_ns = round(subscriber.request.since_s * 1e9)
        try:
            if subscriber.request.needs_lifetimes or self._keep_ns:
                assembler.follow()
            subscriber.begin(assembler, self._complete_ns - since_ns if since_ns else 0)
        except HopscopeError as error:
            subscriber.answer(error)
            return
        if since_ns:
            for _, events in self._kept:
                subscriber.offer(events, 0)
        subscriber.answer(began)

    def _send(self, asked: dict[str, Any]) -> None:
        # The other side reads within one look; lines are short.
        self._line.sendall(_line(asked))

    # ---- rows ----

    def _heard(self, message: Began | Refused | Rows) -> None:
        match message:
            case Rows():
                self._take(message)
            case Refused(number, what, exit_code):
                self._refuse(number, what, exit_code)
            case Began(number):
                self._switch(message)
                for waiting in [self._pending.pop(each) for each in sorted(self._pending) if each <= number]:
                    for subscriber in waiting:
                        if not subscriber.is_answered and self._assembler:
                            self._accept(subscriber, message, self._assembler)

    def _refuse(self, number: int, what: str, exit_code: int) -> None:
        error = HopscopeError(what)
        error.exit_code = exit_code
        for asked in [each for each in self._pending if each <= number]:
            for subscriber in self._pending.pop(asked):
                subscriber.answer(error)

    def _take(self, rows: Rows) -> None:
        if self._assembler is None:
            return
        lost = self._assembler.lost
        for table, columns in rows.rows:
            self._assembler.add(table, columns, self._began.from_ns if self._began else 0)
        self._complete_ns = rows.complete_ns
        forgotten = self._assembler.forgotten
        self._publish(self._assembler.ready(rows.complete_ns), self._assembler.lost - lost)
        self._forgotten += self._assembler.forgotten - forgotten
        if self._forgotten and time.monotonic() >= self._say_s:
            tell(f"hopscope: {forgotten_note(self._forgotten)}")
            self._forgotten, self._say_s = 0, time.monotonic() + _SAY_S

    def _switch(self, began: Began) -> None:
        self._covers = began.covers
        self._began = began
        if self._assembler:
            self._publish(self._assembler.ready(began.from_ns), 0)
            self._assembler.renew(began.metadata)
        else:
            self._assembler = Assembler(began.metadata)

    def _detached(self) -> None:
        self._covers = _NOTHING
        self._kept.clear()
        self._kept_bytes = 0
        if self._assembler:
            self._assembler.close()
        self._assembler = self._began = None

    def _publish(self, events: Events, kernel_lost: int) -> None:
        for piece in events.pieces(_AT_ONCE):
            for subscriber in self._subscribers:
                subscriber.offer(piece, kernel_lost)
            kernel_lost = 0
        if self._keep_ns and len(events):
            self._kept.append((self._complete_ns, events))
            self._kept_bytes += events.size_bytes
            while self._kept and (
                self._kept[0][0] < self._complete_ns - self._keep_ns or self._kept_bytes > _KEPT_BYTES
            ):
                self._kept_bytes -= self._kept.popleft()[1].size_bytes


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _hello(request: Request, began: Began) -> dict[str, Any]:
    meta = began.metadata
    return {
        "version": VERSION,
        "hopscope": __version__,
        "host": meta.host["name"],
        "realtime_offset_ns": meta.realtime_ns - meta.started_ns,
        "format": request.form,
        "fields": list(request.fields),
        "not_granted": sorted(request.points.intersection(began.not_granted)),
    }


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
