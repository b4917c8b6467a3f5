# SPDX-License-Identifier: Apache-2.0
"""Several streams over one connection to another host, which is watched.

Two threads serve it. One reads, and never waits for who takes what it read, since who sends is held back by
credit (:mod:`hopscope.agent.stream`). The other sends what nobody should wait for: credit, closes, a ping each 2 s.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.agent.frames import PART_BYTES, PING, FrameReader, Header, Kind, header
from hopscope.agent.handshake import Hello, greeting, read_greeting
from hopscope.agent.message import decode, encode
from hopscope.agent.stream import Stream
from hopscope.agent.turns import Turns
from hopscope.errors import ConnectionLostError, FormatError, HopscopeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, TypeAlias

    from hopscope.agent.handshake import Side
    from hopscope.agent.transport import Transport

    Accept: TypeAlias = Callable[[Stream, str, dict[str, Any]], None]

# Of an agent that nobody has to type a password for.
HELLO_S: Final = 60.0
PING_S: Final = 2.0
SILENCE_S: Final = 10
_SILENT: Final = "See whether its agent can be started by hand: ssh HOST hopscope agent </dev/null"
STREAMS: Final = 64
_LAST_NUMBER: Final = (1 << 16) - 1
_OTHER: Final[dict[Side, Side]] = {"agent": "client", "client": "agent"}
# How long what was posted may take to get out when the channel is closed, and the reader to say why a write failed.
# Only who is stopped or cut off takes so long; who waits less takes the order of a busy host for an accident.
_FLUSH_S: Final = 2.0
# Each stream posts few; more wait only for who opens and closes streams and does not read.
_POSTED: Final = 1000
# Of all streams, what came and nobody has taken yet; far more than there is where somebody takes it.
HELD_BYTES: Final = 256 << 20


class Alive(NamedTuple):
    """The last sign of life of the other side.

    Attributes
    ----------
    there_ns
        Its CLOCK_MONOTONIC when it gave the sign.
    here_ns
        Ours when the sign came.
    """

    there_ns: int
    here_ns: int


class Channel:
    """Streams to the other side; a context manager that closes it.

    Parameters
    ----------
    transport
        What carries it; closed with it.
    side
        Which one we are. The client opens streams, the agent accepts them.
    name
        Of the other side, for errors.
    accept
        What the agent does with a stream that was opened: its service, and the request.
    ours
        What to say of ourselves.
    hello_s
        How long the other side may take to say hello.

    Attributes
    ----------
    hello
        What the other side said of itself.
    alive
        Its last sign of life.

    Raises
    ------
    ConnectionLostError
        The other side does not say hello.
    FormatError
        It says something else.
    VersionError
        It is another version of hopscope.
    """

    def __init__(  # noqa: PLR0913 # what one side says to the other, and what it is
        self,
        transport: Transport,
        side: Side,
        name: str,
        *,
        accept: Accept | None = None,
        ours: Hello | None = None,
        hello_s: float = HELLO_S,
    ) -> None:
        self._transport, self._accept = transport, accept
        self.name = name
        self._reader = FrameReader(self._read_into)
        self._scratch = memoryview(bytearray(PART_BYTES))
        self._state = threading.Condition()
        self._streams: dict[int, Stream] = {}
        self._number = 0
        self._posted: list[memoryview] = []
        self._posting = False
        self._held_bytes = 0
        self._lost: ConnectionLostError | None = None
        self._gone = threading.Event()
        self._when_lost: list[Callable[[], None]] = []
        self._turns = Turns()
        ours = ours or Hello()
        self.hello = self._greet(side, ours, hello_s)
        self._connection = ours.connection or self.hello.connection
        self.alive = Alive(self.hello.monotonic_ns, time.monotonic_ns())
        self._threads = [
            threading.Thread(target=work, name=f"hopscope-{what}-{name}", daemon=True)
            for what, work in (("read", self._read), ("post", self._post))
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def lost(self) -> ConnectionLostError | None:
        """Why the connection is gone, None while it is there."""
        return self._lost

    def when_lost(self, call: Callable[[], None]) -> None:
        """Have something called once the connection is gone, whoever ended it, or now if it is; it must not wait."""
        with self._state:
            if self._lost is None:
                self._when_lost.append(call)
                return
        call()

    def open(self, service: str, request: Mapping[str, Any]) -> Stream:
        """Have the agent start a service, and return the stream to it.

        What the service could not do, the stream's methods raise.

        Raises
        ------
        UsageError
            There are `STREAMS` already.
        ConnectionLostError
            The connection is gone.
        """
        raw = encode({"service": service, "request": request})
        with self._state:
            if len(self._streams) >= STREAMS:
                raise UsageError(f"There are {STREAMS} streams to {self.name} already", "Close some of them")
            self._number = self._free_number()
            stream = self._streams[self._number] = Stream(self, self._number, self.name, self._connection)
        self.write(Kind.OPEN, stream.number, [memoryview(raw)], lambda: None)
        return stream

    def close(self) -> None:
        """Close all streams and end the connection; idempotent."""
        with self._state:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        with self._state:
            self._state.wait_for(lambda: self._lost or not (self._posted or self._posting), _FLUSH_S)
        self._lose(ConnectionLostError(f"The connection to {self.name} was closed here", how="closed"))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def write(self, kind: Kind, stream: int, payload: Sequence[memoryview], still: Callable[[], None]) -> None:
        """Send a frame, once nobody else does and `still` does not raise; for streams.

        Raises
        ------
        ConnectionLostError
            The connection is gone.
        """
        frame = [memoryview(header(kind, stream, sum(map(len, payload)))), *payload]
        with self._turns:
            still()
            self._write(frame)

    def post(self, kind: Kind, stream: int, payload: bytes) -> None:
        """Have a frame sent soon, without waiting; for streams."""
        with self._state:
            self._posted.append(memoryview(header(kind, stream, len(payload)) + payload))
            many = len(self._posted) > _POSTED
            self._state.notify_all()
        if many:
            self.fail(FormatError("It asks for much and reads nothing"))

    def hold(self, count: int) -> None:
        """Count bytes that came, or, negative, that nobody has to take any more; for streams.

        Raises
        ------
        FormatError
            They are too many.
        """
        with self._state:
            self._held_bytes += count
            if self._held_bytes > HELD_BYTES:
                raise FormatError(f"More than {HELD_BYTES:,} bytes wait to be taken")

    def fail(self, error: HopscopeError) -> ConnectionLostError:
        """End the connection because of what the other side sent, and return what to raise; for streams."""
        what = f"The connection to {self.name} is garbled: {error.what[:1].lower()}{error.what[1:]}"
        return self._lose(ConnectionLostError(what, how="garbled"))

    def forget(self, stream: int) -> None:
        """Free the number of a stream that both sides have closed; for streams."""
        with self._state:
            self._streams.pop(stream, None)

    def _greet(self, side: Side, ours: Hello, hello_s: float) -> Hello:
        until_s = time.monotonic() + hello_s

        def read_into(buffer: memoryview) -> int:
            return self._transport.read_into(buffer, max(until_s - time.monotonic(), 0))

        self._reader.read_into = read_into
        try:
            with contextlib.suppress(ConnectionLostError):  # what there is to read says more
                self._transport.write([memoryview(greeting(side, ours))])
            return read_greeting(self._reader, _OTHER[side], self.name)
        except TimeoutError:
            self._transport.close()
            what = f"{self.name} sent no greeting within {hello_s:g} s"
            raise ConnectionLostError(what, _SILENT, how="silent") from None
        except ConnectionLostError as error:
            explained = self._explained(error)
            self._transport.close()
            raise explained from error
        except BaseException:
            self._transport.close()
            raise
        finally:
            self._reader.read_into = self._read_into

    def _read(self) -> None:
        try:
            while True:
                self._handle(self._reader.header())
        except FormatError as error:
            self.fail(error)
        except ConnectionLostError as error:
            self._lose(self._explained(error))
        except BaseException as error:
            what = f"The connection to {self.name} was given up: {type(error).__name__} {error}"
            self._lose(ConnectionLostError(what, how="closed"))
            raise

    def _read_into(self, buffer: memoryview) -> int:
        # Seconds are counted, not measured: of those in which we were stopped, nothing is known.
        for _ in range(SILENCE_S):
            with contextlib.suppress(TimeoutError):
                return self._transport.read_into(buffer, 1.0)
        raise ConnectionLostError(f"{self.name} was silent for {SILENCE_S} s", how="silent")

    def _handle(self, head: Header) -> None:
        if head.kind == Kind.PING:
            (there_ns,) = PING.unpack(self._reader.payload(head))
            if there_ns >= 1 << 63:
                raise FormatError("No clock has run so long")
            self.alive = Alive(there_ns, time.monotonic_ns())
        elif head.kind == Kind.OPEN:
            self._opened(head)
        elif (stream := self._streams.get(head.stream)) is None:
            raise FormatError(f"There is no stream {head.stream}")
        elif head.kind == Kind.PART:
            into = stream.part(head.length)
            self._reader.take(self._scratch[: head.length] if into is None else into)
            stream.filled(head.length)
        else:
            stream.arrive(head.kind, self._reader.payload(head))

    def _opened(self, head: Header) -> None:
        message = decode(self._reader.payload(head))
        service, request = message.get("service"), message.get("request")
        if self._accept is None or not isinstance(service, str) or not isinstance(request, dict):
            raise FormatError("A stream is opened in a way that there is not")
        with self._state:
            if head.stream in self._streams or len(self._streams) >= STREAMS:
                raise FormatError(f"Stream {head.stream} is open already, or one too many")
            stream = self._streams[head.stream] = Stream(self, head.stream, self.name, self._connection)
        self._accept(stream, service, request)

    def _post(self) -> None:
        due_s = time.monotonic() + PING_S
        while True:
            with self._state:
                self._posting = False
                self._state.notify_all()
                self._state.wait_for(lambda: self._posted or self._lost, max(due_s - time.monotonic(), 0))
                if self._lost:
                    return
                frames, self._posted, self._posting = self._posted, [], True
            with contextlib.suppress(ConnectionLostError), self._turns:
                if (now_s := time.monotonic()) >= due_s:
                    due_s = now_s + PING_S
                    frames.append(memoryview(header(Kind.PING, 0, PING.size) + PING.pack(time.monotonic_ns())))
                self._write(frames)

    def _write(self, frames: Sequence[memoryview]) -> None:
        # The caller's turn. After a part of a frame there is no other.
        try:
            self._transport.write(frames)
        except ConnectionLostError as error:
            # What there is to read says more. Who reads has closed the transport if that is closed and nothing is known
            # yet: it waits for why, and how a program ended may take a while to be told.
            self._gone.wait(None if error.how == "closed" else _FLUSH_S)
            raise self._lose(self._lost or self._explained(error)) from error
        except BaseException:
            self._lose(ConnectionLostError(f"The connection to {self.name} was closed here", how="closed"))
            raise

    def _explained(self, error: ConnectionLostError) -> ConnectionLostError:
        # What carries the bytes knows neither whose they are nor why there are no more.
        what = error.what.replace("The connection ended", f"The connection to {self.name} ended")
        why = self._transport.why_ended() if error.how == "ended" else ""
        return ConnectionLostError(f"{what}: {why}" if why else what, how=error.how)

    def _lose(self, error: ConnectionLostError) -> ConnectionLostError:
        with self._state:
            first, self._lost = self._lost is None, self._lost or error
            streams = list(self._streams.values())
            self._state.notify_all()
        if first:
            for stream in streams:
                stream.end(error)
            self._gone.set()
            for call in self._when_lost:
                call()
            self._transport.close()
        return self._lost

    def _free_number(self) -> int:
        number = self._number
        while True:
            number = number % _LAST_NUMBER + 1
            if number not in self._streams:
                return number
