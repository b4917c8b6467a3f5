# SPDX-License-Identifier: Apache-2.0
"""One of the streams of a channel: messages and blocks, in order, no faster than the other side takes them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from hopscope.agent.frames import BLOCK_BYTES, CREDIT, HEAD_BYTES, PART_BYTES, Kind
from hopscope.agent.message import decode, encode, printable
from hopscope.errors import ConnectionLostError, FormatError, RemoteError, StreamClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from _typeshed import ReadableBuffer

    from hopscope.agent.handshake import Connection
    from hopscope.errors import HopscopeError

# Who has sent so much that was not yet taken waits; a block that has begun is finished nevertheless.
WINDOW_BYTES: Final = 8 << 20
# How long a service may take to begin: to load and attach its programs, at most.
ANSWER_S: Final = 60.0
# Of memory, beside the bytes of a message or a block.
_EACH_BYTES: Final = 512
_EXIT_CODES: Final = range(1, 256)
_SAID_CHARACTERS: Final = 2000
# writev takes 1024; a header goes before.
_MOST_BUFFERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """A message of JSON.

    Attributes
    ----------
    body
        The object.
    """

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes in bulk.

    Attributes
    ----------
    head
        What they are.
    data
        The bytes, writable.
    """

    head: dict[str, Any]
    data: memoryview


class Wire(Protocol):
    """What a stream needs of its channel."""

    def write(self, kind: Kind, stream: int, payload: Sequence[memoryview], still: Callable[[], None]) -> None:
        """Send a frame, once nobody else does and `still` does not raise."""

    def post(self, kind: Kind, stream: int, payload: bytes) -> None:
        """Have a frame sent soon, without waiting."""

    def hold(self, count: int) -> None:
        """Count bytes that came, or, negative, that nobody has to take any more."""

    def fail(self, error: HopscopeError) -> HopscopeError:
        """End the connection because of what the other side sent; returns what to raise."""

    def forget(self, stream: int) -> None:
        """Free the number of a stream that both sides have closed."""


class Stream:
    """One of the streams of a channel; a context manager that closes it.

    Any thread may send and any may receive; what one sends is never torn by another.

    Parameters
    ----------
    wire, number
        Of the channel.
    name
        Of the host on the other side, for errors.
    connection
        By which the client came to the agent, if that is known: a service leaves it out of what it measures.
    """

    def __init__(self, wire: Wire, number: int, name: str, connection: Connection | None = None) -> None:
        self._wire, self.number, self._name, self.connection = wire, number, name, connection
        self._changed = threading.Condition()
        self._sending = threading.Lock()  # a block and its parts are together
        self._arrived: deque[tuple[bytearray | Block, int]] = deque()  # what came, and what it costs
        self._block: tuple[Block, int] | None = None  # of which parts are to come
        self._filled_bytes = 0
        self._credit_bytes = self._allowed_bytes = WINDOW_BYTES
        self._taken_bytes = 0
        self._held_bytes = 0
        self._closed = False
        self._end: HopscopeError | None = None  # why nothing more comes from the other side

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; waits as long as the other side does not take what it was sent.

        Raises
        ------
        FormatError
            It is longer than a message may be.
        RemoteError, StreamClosedError
            The other side failed, or takes no more.
        ConnectionLostError
            It is gone.
        """
        raw = encode(message)
        with self._sending:
            self._spend(_cost(raw))
            self._wire.write(Kind.MESSAGE, self.number, [memoryview(raw)], self._check_open)

    def send_block(self, head: Mapping[str, Any], data: Sequence[ReadableBuffer]) -> None:
        """Send a block, as `send`; its data are put one behind the other."""
        buffers = [memoryview(buffer).cast("B") for buffer in data]
        size = sum(map(len, buffers))
        if size > BLOCK_BYTES:
            raise FormatError(f"A block of {size:,} bytes is longer than {BLOCK_BYTES:,}")
        raw = encode({"bytes": size, "head": head}, HEAD_BYTES)
        with self._sending:
            self._spend(_cost(raw) + size)
            self._wire.write(Kind.BLOCK, self.number, [memoryview(raw)], self._check_open)
            for part in _parts(buffers):
                self._wire.write(Kind.PART, self.number, part, self._check_open)

    def receive(self, timeout_s: float | None = None) -> Message | Block | None:
        """Return what came next, None once the other side, or we, closed the stream.

        Raises
        ------
        TimeoutError
            Nothing came so long.
        RemoteError
            The other side failed.
        ConnectionLostError
            It is gone, and what it had sent was received.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived or self._end or self._closed, timeout_s):
                raise TimeoutError
            if self._closed:
                return None
            if not self._arrived:
                if isinstance(self._end, StreamClosedError):
                    return None
                assert self._end is not None  # noqa: S101 - for the type checker
                raise self._end
            arrived, cost = self._arrived.popleft()
            self._take(cost)
        try:
            return arrived if isinstance(arrived, Block) else Message(decode(arrived))
        except FormatError as error:
            raise self._wire.fail(error) from error

    def answer(self) -> Message | Block | None:
        """Return what came next, as :meth:`receive`, of a service that has just been asked for.

        Raises
        ------
        ConnectionLostError
            Nothing came for `ANSWER_S`.
        """
        try:
            return self.receive(ANSWER_S)
        except TimeoutError:
            what = f"{self._name} did not begin within {ANSWER_S:g} s, though its agent runs"
            raise ConnectionLostError(what, "See what keeps that host busy, and try again", how="silent") from None

    def close(self, error: HopscopeError | None = None) -> None:
        """Send and receive no more; with an error, the other side raises it. Idempotent; does not wait."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._arrived.clear()
            self._block = None
            self._hold(-self._held_bytes)
            self._changed.notify_all()
            if self._end is not None:
                self._wire.forget(self.number)
        self._wire.post(Kind.CLOSE, self.number, b"" if error is None else encode_error(error))

    def arrive(self, kind: Kind, raw: bytearray) -> None:
        """Take a frame that came, other than a part of a block.

        Raises
        ------
        FormatError
            It is wrong, or more than may be sent.
        """
        with self._changed:
            if kind == Kind.CREDIT:
                self._credit_bytes += CREDIT.unpack(raw)[0]
                self._changed.notify_all()
            elif kind == Kind.CLOSE:
                self._finish(decode_error(raw, self._name) if raw else StreamClosedError(f"{self._name} wants no more"))
                if self._closed:
                    self._wire.forget(self.number)
            elif self._block is not None or self._end is not None:
                raise FormatError(f"A frame {kind.name} comes within a block, or after a close")
            elif not self._closed:
                self._begin(kind, raw)

    def part(self, length: int) -> memoryview | None:
        """Return where the next part of a block goes, None if nobody wants it.

        Raises
        ------
        FormatError
            No block is to have so much.
        """
        with self._changed:
            if self._closed:
                return None
            data = self._block[0].data[self._filled_bytes :] if self._block else b""
            if length > len(data):
                raise FormatError(f"A part of {length:,} bytes belongs to no block")
            return memoryview(data)[:length]

    def filled(self, length: int) -> None:
        """Say that such a part is complete."""
        with self._changed:
            if self._block is None:
                return  # closed meanwhile
            self._filled_bytes += length
            if self._filled_bytes == len(self._block[0].data):
                self._arrived.append(self._block)
                self._block = None
                self._changed.notify_all()

    def end(self, error: HopscopeError) -> None:
        """Say that nothing more comes, and nothing more can be sent."""
        with self._changed:
            self._finish(error)

    def _begin(self, kind: Kind, raw: bytearray) -> None:
        if self._allowed_bytes <= 0:
            raise FormatError("More was sent than may be")
        arrived = _announced(raw) if kind == Kind.BLOCK else raw
        size = len(arrived.data) if isinstance(arrived, Block) else 0
        cost = _cost(raw) + size
        self._hold(cost)
        self._allowed_bytes -= cost
        if isinstance(arrived, Block) and size:
            self._block, self._filled_bytes = (arrived, cost), 0
        else:
            self._arrived.append((arrived, cost))
            self._changed.notify_all()

    def _finish(self, error: HopscopeError) -> None:
        if self._end is None:
            self._end = error
        if self._block is not None:
            self._hold(-self._block[1])
            self._block = None
        self._changed.notify_all()

    def _hold(self, cost: int) -> None:
        self._wire.hold(cost)
        self._held_bytes += cost

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end
        if self._closed:
            raise StreamClosedError("The stream was closed here")

    def _spend(self, cost: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._credit_bytes > 0 or self._end or self._closed)
            self._check_open()
            self._credit_bytes -= cost

    def _take(self, cost: int) -> None:
        self._hold(-cost)
        self._taken_bytes += cost
        if self._taken_bytes >= WINDOW_BYTES // 4:
            self._allowed_bytes += self._taken_bytes
            self._wire.post(Kind.CREDIT, self.number, CREDIT.pack(self._taken_bytes))
            self._taken_bytes = 0


def encode_error(error: HopscopeError) -> bytes:
    """Return the payload that closes a stream because of an error."""
    said = {"what": error.what[:_SAID_CHARACTERS], "next_step": error.next_step[:_SAID_CHARACTERS]}
    return encode({"error": {**said, "exit_code": error.exit_code}}, HEAD_BYTES)


def decode_error(raw: bytearray, name: str) -> RemoteError:
    """Return the error of such a payload.

    Raises
    ------
    FormatError
        It is none.
    """
    error = decode(raw).get("error")
    if not isinstance(error, dict) or not isinstance(code := error.get("exit_code"), int) or code not in _EXIT_CODES:
        raise FormatError("A stream was closed in a way that there is not")
    what, next_step = (printable(error.get(key, ""), _SAID_CHARACTERS) for key in ("what", "next_step"))
    return RemoteError(f"{name}: {what}", next_step, exit_code=code)


def _cost(raw: bytes | bytearray) -> int:
    return len(raw) + _EACH_BYTES


def _announced(raw: bytearray) -> Block:
    message = decode(raw)
    size, head = message.get("bytes"), message.get("head")
    if type(size) is not int or not 0 <= size <= BLOCK_BYTES or not isinstance(head, dict):
        raise FormatError(f"A block has no head, or is not of 0 to {BLOCK_BYTES:,} bytes")
    return Block(head, np.empty(size, np.uint8).data)


def _parts(buffers: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    part, room = [], PART_BYTES
    for whole in buffers:
        rest = whole
        while len(rest):
            part.append(rest[:room])
            rest = rest[room:]
            room -= len(part[-1])
            if not room or len(part) == _MOST_BUFFERS:
                yield part
                part, room = [], PART_BYTES
    if part:
        yield part
