# SPDX-License-Identifier: Apache-2.0
"""A live collector of another host as if it were here, also after the connection was lost and came back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hopscope.agent.stream import Block, Message
from hopscope.errors import FormatError, HopscopeError, StreamClosedError
from hopscope.live.remote.codec import CODECS, Answer, decode_messages
from hopscope.live.remote.own import OWN
from hopscope.model.checked_json import Fields
from hopscope.model.hosts import Absence, HostReport
from hopscope.term.json_lines import plan_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hopscope.agent.channel import Channel
    from hopscope.agent.handshake import Connection
    from hopscope.agent.stream import Stream
    from hopscope.live.remote.codec import Codec
    from hopscope.model.message import Message as FollowedMessage
    from hopscope.model.slowest import Slowest
    from hopscope.model.snapshot import Kind, PlanRow

SnapshotT = TypeVar("SnapshotT")

_SERVICE: Final = "live"
_LATE: Final = "no answer yet; its data will be reported later"
_LATE_AT_LAST: Final = "it stopped answering"
# Between attempts to reach it again.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_END_S: Final = 1.0
# Messages that nobody fetches are not kept without limit: no more than can be printed soon.
_MOST_MESSAGES: Final = 1 << 15
_AT_ONCE: Final = 1000


class RemoteFound:
    """Single messages of another host's ``rx`` or ``tx``; see :class:`~hopscope.live.contract.MessageSource`.

    Attributes
    ----------
    offset_ns, dropped
        As there; the oldest ones are dropped where too many wait.
    """

    def __init__(self) -> None:
        self.offset_ns = 0
        self.dropped = 0
        self._waiting: deque[FollowedMessage] = deque()
        self._slowest: dict[str, Slowest | None] = {}

    def add(self, messages: Sequence[FollowedMessage], offset_ns: int) -> None:
        """Keep messages until they are fetched."""
        self.offset_ns = offset_ns
        self._waiting.extend(messages)
        while len(self._waiting) > _MOST_MESSAGES:
            with contextlib.suppress(IndexError):  # fetched meanwhile
                self._waiting.popleft()
                self.dropped += 1

    def keep(self, kind: Kind, slowest: Slowest | None) -> None:
        """Keep the slowest ones of the last look."""
        self._slowest[kind] = slowest

    def fetch(self) -> list[FollowedMessage]:
        """Return the next messages."""
        found: list[FollowedMessage] = []
        with contextlib.suppress(IndexError):
            while len(found) < _AT_ONCE:
                found.append(self._waiting.popleft())
        return found

    def close(self) -> None:
        """Do nothing: the host drops what it cannot send in time, and what comes of it until its total is printed."""

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest of the last look; None where they are not wanted."""
        return self._slowest.get(kind)


class RemoteCollector(Generic[SnapshotT]):
    """A collector on another host.

    A thread listens to it. What came is kept until it is asked for; when the connection breaks, what had come until
    then stays, and the thread tries to reach the host again, in longer and longer pauses.

    Parameters
    ----------
    channel
        To the host; closed with it.
    reconnect
        Makes another one.
    verb, words
        Whose collector, and its options.

    Attributes
    ----------
    found
        Single messages of ``rx`` and ``tx``.
    """

    def __init__(self, channel: Channel, reconnect: Callable[[], Channel], verb: str, words: Sequence[str]) -> None:
        self.name = channel.name
        self.found = RemoteFound()
        self._channel, self._reconnect = channel, reconnect
        self._request: dict[str, Any] = {"verb": verb, "words": [*words], OWN: []}
        self._codec: Codec[SnapshotT] = CODECS[verb]
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._plan: list[PlanRow] = []
        # While it is there.
        self._stream: Stream | None = None
        self._asked: set[Kind] = set()
        self._late = False
        self._known_until_ns = 0
        # What came and was not taken; all intervals of this connection; the whole of the connections before.
        self._waiting: list[Answer[SnapshotT]] = []
        self._intervals: Answer[SnapshotT] | None = None
        self._total: Answer[SnapshotT] | None = None
        self._before: list[Answer[SnapshotT]] = []
        self._absences: list[Absence] = []
        self._thread = threading.Thread(target=self._follow, name=f"hopscope-live-{self.name}", daemon=True)

    def plan(self) -> list[PlanRow]:
        """Return how its probe points are attached."""
        return self._plan

    def drain(self) -> None:
        """Do nothing: its rings are emptied over there."""

    @property
    def connection(self) -> Connection | None:
        """The connection to it, as far as that is known; the last one where it is lost."""
        return self._channel.hello.connection

    def leave_out(self, flows: list[list[Any]]) -> None:
        """Have it leave out these flows of our own from now on, also when it comes back. Does not wait."""
        with self._changed:
            self._request = {**self._request, OWN: flows}
            stream = self._stream
        if stream:
            with contextlib.suppress(HopscopeError):  # the thread hears of it, too
                stream.send({OWN: flows})

    def open(self) -> None:
        """Have the host attach it, without waiting until it has."""
        self._stream = self._channel.open(_SERVICE, self._request)

    def start(self) -> None:
        """Wait until it is attached.

        Raises
        ------
        HopscopeError
            It cannot be, or the connection is lost.
        """
        assert self._stream is not None  # noqa: S101 # opened before
        self._plan = _attached(self._stream)
        self._known_until_ns = time.time_ns()
        self._thread.start()

    def close(self) -> None:
        """Detach it."""
        self._closing.set()
        self._channel.close()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def ask(self, kind: Kind, window_s: float = 0.0) -> None:
        """Ask for a look, or for the whole; its cost is measured for `window_s` before. Does not wait."""
        with self._changed:
            stream = self._stream
            if stream is None or kind in self._asked:
                return
            self._asked.add(kind)
        with contextlib.suppress(HopscopeError):  # the thread hears of it, too
            stream.send({"kind": kind, "window_s": window_s})

    def wait(self, until_s: float, *, for_late: bool) -> None:
        """Wait for what was asked for until that time of CLOCK_MONOTONIC.

        Not for a host that is gone; for one that was late already only if `for_late`.
        """
        with self._changed:
            left_s = 0 if self._late and not for_late else max(until_s - time.monotonic(), 0)
            self._late = not self._changed.wait_for(lambda: not self._asked or self._stream is None, left_s)

    def interval(self) -> HostReport[SnapshotT]:
        """Return what came since the last call."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
            absences = self._absences[-1:] if self._stream is None else []
            if not waiting and not absences:
                absences = [Absence(self._known_until_ns, None, _LATE)]
        return self._report("interval", waiting, absences)

    def total(self) -> HostReport[SnapshotT]:
        """Return what came since the start."""
        with self._changed:
            current = self._total or self._intervals
            answers = [*self._before, *([current] if current else [])]
            late = [Absence(self._known_until_ns, None, _LATE_AT_LAST)] if self._stream and not self._total else []
            return self._report("total", answers, [*self._absences, *late])

    def _report(
        self, kind: Kind, answers: Sequence[Answer[SnapshotT]], absences: Sequence[Absence]
    ) -> HostReport[SnapshotT]:
        if not answers:
            self.found.keep(kind, None)
            return HostReport(self.name, None, [*absences])
        merged = self._codec.merged(answers)
        self.found.offset_ns = merged.offset_ns
        self.found.keep(kind, merged.slowest and replace(merged.slowest, kind=kind))
        snapshot: Any = merged.snapshot
        if kind == "total" and self.found.dropped:
            snapshot = replace(snapshot, lost=snapshot.lost + self.found.dropped)
        return HostReport(self.name, replace(snapshot, kind=kind), [*absences])

    # ---- the thread ----

    def _follow(self) -> None:
        while not self._closing.is_set():
            reason = self._listen()
            with self._changed:
                self._stream = None
                self._asked.clear()
                if self._intervals:
                    self._before.append(self._intervals)
                self._intervals = self._total = None
                self._absences.append(Absence(self._known_until_ns, None, reason))
                self._changed.notify_all()
            self._channel.close()
            self._come_back()

    def _listen(self) -> str:
        """Take what comes, and return why it ends."""
        stream = self._stream
        assert stream is not None  # noqa: S101 # opened before
        try:
            while (got := stream.receive()) is not None:
                self._take(got)
        except HopscopeError as error:
            return _short(error)
        except (ArithmeticError, ValueError) as error:  # numbers that fit their schema, and nothing else
            return f"It sent malformed data: {error}"
        return "its agent ended the measurement"

    def _take(self, got: Message | Block) -> None:
        if not isinstance(got, Block):
            raise FormatError("A live collector sends blocks alone")
        kind = Fields(got.head, "A block").choice("kind", ("interval", "total", "messages"))
        if kind == "messages":
            self.found.add(*decode_messages(got.data))
            return
        answer = self._codec.decode(got.data)
        with self._changed:
            self._asked.discard("interval" if kind == "interval" else "total")
            self._known_until_ns = time.time_ns()
            if kind == "total":
                self._total = answer
            else:
                self._waiting.append(answer)
                self._intervals = self._codec.merged([self._intervals, answer]) if self._intervals else answer
            self._changed.notify_all()

    def _come_back(self) -> None:
        """Reach the host again, or give up when we end."""
        pause_s = _FIRST_PAUSE_S
        while not self._closing.wait(pause_s):
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                channel = self._reconnect()
                stream = channel.open(_SERVICE, self._request)
                plan = _attached(stream)
            except HopscopeError as error:
                with self._changed:
                    self._absences[-1] = replace(self._absences[-1], reason=_short(error))
                continue
            with self._changed:
                self._channel, self._stream, self._plan = channel, stream, plan
                self._known_until_ns = time.time_ns()
                self._absences[-1] = replace(self._absences[-1], until_ns=self._known_until_ns)
            if self._closing.is_set():
                channel.close()
            return


def _short(error: HopscopeError) -> str:
    """Return the first sentence of an error: it may be shown each second."""
    return error.what.partition(". ")[0]


def _attached(stream: Stream) -> list[PlanRow]:
    """Wait until a collector is attached, and return how."""
    got = stream.answer()
    if got is None:
        raise StreamClosedError("The agent ended the measurement")
    if not isinstance(got, Message):
        raise FormatError("A live collector begins with its plan")
    return [plan_from_json(row) for row in Fields(got.body, "A plan").parts("plan")]
