# SPDX-License-Identifier: Apache-2.0
"""One of the hosts that are recorded: what its agent sends goes into a folder, and when it is lost it is sought."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.agent.connect import connect
from hopscope.agent.message import printable
from hopscope.agent.stream import Block, Message
from hopscope.errors import DiskFullError, FormatError, HopscopeError
from hopscope.live.remote.own import OWN
from hopscope.store.destination import Folder
from hopscope.term.recording import Recording
from hopscope.verbs.record.protocol import SERVICE, Incoming, fields_of, heard, metadata_of, texts, until_ns

if TYPE_CHECKING:
    from hopscope.agent.channel import Channel
    from hopscope.agent.ssh import Ssh
    from hopscope.agent.stream import Stream
    from hopscope.agent.target import Target
    from hopscope.agent.tls import Tls
    from hopscope.store.hosts import HostsWriter
    from hopscope.store.meta import Metadata

# Between two tries to reach it.
_LEAST_S: Final = 1.0
_MOST_S: Final = 30.0


class Transports(NamedTuple):
    """How to reach agents.

    Attributes
    ----------
    ssh, tls
        As :func:`~hopscope.agent.connect.connect` takes them.
    """

    ssh: Ssh
    tls: Tls


class Began(NamedTuple):
    """A recording that has begun on a host.

    Attributes
    ----------
    channel, stream
        To its agent.
    metadata
        What the trace says of itself.
    not_granted
        Points that its kernel does not grant.
    """

    channel: Channel
    stream: Stream
    metadata: Metadata
    not_granted: list[str]


class Absent(NamedTuple):
    """How a host is missing.

    Attributes
    ----------
    since_s
        Our own clock.
    from_ns
        All events before were recorded, CLOCK_MONOTONIC of the host.
    reason
        One sentence.
    """

    since_s: float
    from_ns: int
    reason: str


def begin(channel: Channel, request: dict[str, Any]) -> Began:
    """Ask a host to record, and wait until it does.

    Raises
    ------
    HopscopeError
        It cannot, or its agent is gone.
    """
    stream = channel.open(SERVICE, request)
    block, message = stream.answer(), stream.answer()
    if not isinstance(block, Block) or not isinstance(message, Message):
        raise FormatError(f"{channel.name} does not start recording")
    return Began(channel, stream, metadata_of(block, "began"), texts(message.body, "not_granted"))


class HostRecording:
    """Takes what comes from one host, in a thread of its own.

    Parameters
    ----------
    target, transports
        How it is reached.
    request
        What it is asked for.
    writer
        Of the recording of all hosts.

    Attributes
    ----------
    channel
        To its agent, None while there is none.
    error
        Why all must end.
    ended
        Its agent has said that the recording is over, and nothing is missing of its end.
    absent
        How it is missing now, None where it is not.
    returns
        How often it came back.
    remarks
        What its agent said at the end.
    cpu_s
        CPU time that its agent took, the last one if there were several.
    """

    def __init__(self, target: Target, transports: Transports, request: dict[str, Any], writer: HostsWriter) -> None:
        self.name = target.name
        self._target = target
        self._transports = transports
        self._request = request
        self._writer = writer
        self._stream: Stream | None = None
        self.channel: Channel | None = None
        self.error: HopscopeError | None = None
        self.ended = False
        self.absent: Absent | None = None
        self.returns = 0
        self.remarks: list[str] = []
        self.cpu_s = 0.0
        self._missed: list[tuple[float, str]] = []
        self._before = self._now = Recording(0, 0, 0, 0)
        self._received_bytes = 0
        self._given_up = ""
        self._until_ns = 0
        self._stops = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, began: Began) -> None:
        """Take from now on what comes of a recording that has begun.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        incoming = self._part(began)
        self._thread = threading.Thread(
            target=self._run, args=(began, incoming), name=f"hopscope-{self.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; what waits there is still sent. Does not wait."""
        self._stops.set()
        self._order({"stop": True})

    def leave_out(self, flows: list[list[Any]]) -> None:
        """Have these left out of the recording from now on, also after the host was lost."""
        self._request = {**self._request, OWN: flows}
        self._order({OWN: flows})

    def cut(self) -> None:
        """End at once; again is allowed."""
        self._stops.set()
        if channel := self.channel:
            channel.close()
        if self._thread and not self.absent:
            self._thread.join()

    def give_up(self, reason: str) -> None:
        """Wait no longer for its end; what came of it is kept."""
        self._given_up = reason
        if channel := self.channel:
            channel.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of what comes; say whether that is so."""
        if self._thread:
            self._thread.join(timeout_s)
        return not (self._thread and self._thread.is_alive())

    def now(self) -> Recording:
        """Say how far it is, all parts together."""
        before, now = self._before, self._now
        return Recording(
            elapsed_s=before.elapsed_s + now.elapsed_s,
            events=before.events + now.events,
            lost=before.lost + now.lost,
            size_bytes=self._received_bytes,
        )

    def missing(self) -> list[tuple[float, str]]:
        """Return for how many seconds it was missing, and why, each time."""
        absent = self.absent
        return [*self._missed, *([(time.monotonic() - absent.since_s, absent.reason)] if absent else [])]

    def _run(self, began: Began | None, incoming: Incoming) -> None:
        try:
            while began:
                self._take(began, incoming)
                found = None if self.ended or self._stops.is_set() else self._seek()
                if not found:
                    return
                began, incoming = found
        except HopscopeError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 # a bug of ours, which must not look like an end
            self.error = HopscopeError(f"{self.name}: {type(error).__name__}: {error}")

    def _part(self, began: Began) -> Incoming:
        incoming = Incoming(began.metadata, Folder(self._writer.part(self.name)))
        self._until_ns = began.metadata.started_ns
        self.channel, self._stream = began.channel, began.stream
        if self._stops.is_set():  # meanwhile
            self.stop()
        return incoming

    def _take(self, began: Began, incoming: Incoming) -> None:
        """Take all that comes, until the end or until the host is lost."""
        since_s = time.monotonic()
        with began.channel, incoming:
            try:
                self._receive(began.stream, incoming)
            except DiskFullError:
                raise
            except HopscopeError as error:
                self._lose(error, since_s)
            finally:
                self.channel = self._stream = None

    def _receive(self, stream: Stream, incoming: Incoming) -> None:
        while (found := stream.receive()) is not None:
            if isinstance(found, Block):
                incoming.take(found)
                self._received_bytes += len(found.data)
                continue
            fields = fields_of(found.body)
            if "progress" in found.body:
                self._now = heard(fields.part("progress"))
            elif "until_ns" in found.body:
                self._until_ns = max(self._until_ns, until_ns(fields))
            else:
                self._now = heard(fields.part("ended"))
                self.remarks = texts(found.body, "remarks")
                self.cpu_s = fields.number("cpu_s")
                self.ended = incoming.metadata.state == "complete"
        if not self.ended:
            raise HopscopeError("Its agent ended the recording unexpectedly")

    def _lose(self, error: HopscopeError, since_s: float) -> None:
        """Write down that nothing comes any more."""
        now = self.now()
        self._before = replace(now, elapsed_s=self._before.elapsed_s + time.monotonic() - since_s)
        self._now = Recording(0, 0, 0, 0)
        reason = self._given_up or printable(error.what.partition(". ")[0])
        self.absent = Absent(time.monotonic(), self._until_ns, reason)
        self._writer.absent(self.name, self._until_ns, None, self.absent.reason)

    def _seek(self) -> tuple[Began, Incoming] | None:
        """Try to reach it again, with longer and longer pauses, until it is there or nobody wants it any more."""
        pause_s = _LEAST_S
        while not self._stops.wait(pause_s):
            pause_s = min(pause_s * 2, _MOST_S)
            try:
                return self._return(connect(self._target, self._transports.ssh.again(), self._transports.tls))
            except DiskFullError:
                raise
            except HopscopeError:
                continue  # it is still missing, for the reason that is written down
        return None

    def _return(self, channel: Channel) -> tuple[Began, Incoming]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(channel)
            began = begin(channel, self._request)
            absent = self.absent
            assert absent is not None  # noqa: S101 # for the type checker
            self._writer.absent(self.name, absent.from_ns, began.metadata.started_ns, absent.reason)
            incoming = self._part(began)
            stack.pop_all()
        self._missed.append((time.monotonic() - absent.since_s, absent.reason))
        self.absent = None
        self.returns += 1
        return began, incoming

    def _order(self, order: dict[str, Any]) -> None:
        stream = self._stream
        if stream:
            with contextlib.suppress(HopscopeError):  # then the thread knows, too
                stream.send(order)
