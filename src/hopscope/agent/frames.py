# SPDX-License-Identifier: Apache-2.0
"""Frames on a byte stream: a header of eight bytes, then so many bytes as it says.

::

    u32 length   of the payload, little-endian as all
    u16 stream   0 is the connection itself
    u8  kind     below
    u8  flags    0

    OPEN     {"service", "request"}: a stream begins
    MESSAGE  a JSON object
    BLOCK    {"bytes", "head"}: so many bytes follow in parts
    PART     of the block that was announced last on this stream
    CREDIT   u32: so much more may be sent on this stream (channel.py)
    CLOSE    nothing, or {"error"}: nothing more is sent on this stream
    PING     u64: CLOCK_MONOTONIC of who sends it
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.agent.message import MESSAGE_BYTES
from hopscope.errors import ConnectionLostError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

PART_BYTES: Final = 256 << 10
BLOCK_BYTES: Final = 64 << 20
HEAD_BYTES: Final = 64 << 10
CREDIT: Final = struct.Struct("<I")
PING: Final = struct.Struct("<Q")
_HEADER: Final = struct.Struct("<IHBB")
_BUFFER_BYTES: Final = 64 << 10


class Kind(enum.IntEnum):
    """What a frame is."""

    OPEN = 1
    MESSAGE = 2
    BLOCK = 3
    PART = 4
    CREDIT = 5
    CLOSE = 6
    PING = 7


# The least and the most bytes of each kind's payload, and whether it is about a stream (or the connection).
_BOUNDS: Final = {
    Kind.OPEN: (2, MESSAGE_BYTES),
    Kind.MESSAGE: (2, MESSAGE_BYTES),
    Kind.BLOCK: (2, HEAD_BYTES),
    Kind.PART: (1, PART_BYTES),
    Kind.CREDIT: (CREDIT.size, CREDIT.size),
    Kind.CLOSE: (0, HEAD_BYTES),
    Kind.PING: (PING.size, PING.size),
}


class Header(NamedTuple):
    """A frame's header.

    Attributes
    ----------
    length
        Bytes of the payload.
    stream
        The stream's number, 0 for the connection.
    kind
        What it is.
    """

    length: int
    stream: int
    kind: Kind


def header(kind: Kind, stream: int, length: int) -> bytes:
    """Return a header's bytes."""
    return _HEADER.pack(length, stream, kind, 0)


def parse(raw: bytes | bytearray | memoryview) -> Header:
    """Return the header of these eight bytes.

    Raises
    ------
    FormatError
        There is no such frame.
    """
    length, stream, number, flags = _HEADER.unpack(raw)
    try:
        kind = Kind(number)
    except ValueError:
        raise FormatError(f"There is no frame of kind {number}") from None
    least, most = _BOUNDS[kind]
    if not least <= length <= most:
        raise FormatError(f"A frame {kind.name} of {length:,} bytes is not of {least:,} to {most:,}")
    if flags:
        raise FormatError(f"A frame {kind.name} has the flags {flags:#x}, and there are none")
    if (stream == 0) != (kind == Kind.PING):
        raise FormatError(f"A frame {kind.name} is not about stream {stream}")
    return Header(length, stream, kind)


class FrameReader:
    """Reads bytes exactly so far as it is asked for, out of chunks of any size.

    Parameters
    ----------
    read_into
        Fills some of a buffer and returns how much, 0 at the end.
    """

    def __init__(self, read_into: Callable[[memoryview], int]) -> None:
        self.read_into = read_into
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._end = 0

    def find(self, pattern: bytes, limit: int) -> bytes | None:
        """Return all up to the end of a pattern; None if it is not within `limit` bytes, which it then holds back.

        The limit is at most what fits the buffer. See `held` for what there was.
        """
        while True:
            held = self.held()
            at = held.find(pattern)
            if at >= 0:
                self._start += at + len(pattern)
                return held[: at + len(pattern)]
            if len(held) >= limit or not self._fill():
                return None

    def held(self) -> bytes:
        """Return what was read and not yet asked for."""
        return bytes(self._buffer[self._start : self._end])

    def header(self) -> Header:
        """Return the next frame's header.

        Raises
        ------
        FormatError
            What comes is no frame.
        ConnectionLostError
            The bytes end.
        """
        raw = bytearray(_HEADER.size)
        self.take(memoryview(raw))
        return parse(raw)

    def payload(self, header: Header) -> bytearray:
        """Return the bytes that follow a header.

        Raises
        ------
        ConnectionLostError
            They end before.
        """
        raw = bytearray(header.length)
        self.take(memoryview(raw))
        return raw

    def take(self, into: memoryview) -> None:
        """Fill a buffer whole.

        Raises
        ------
        ConnectionLostError
            The bytes end before.
        """
        while len(into):
            if self._start == self._end and len(into) >= _BUFFER_BYTES:
                count = self.read_into(into)  # past the buffer: nothing is copied
            elif self._start == self._end and not self._fill():
                count = 0
            else:
                count = min(len(into), self._end - self._start)
                into[:count] = self._buffer[self._start : self._start + count]
                self._start += count
            if not count:
                raise ConnectionLostError("The connection ended", how="ended")
            into = into[count:]

    def _fill(self) -> bool:
        # One more chunk behind what is held; False at the end.
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            held = self.held()
            self._start, self._end = 0, len(held)
            self._buffer[: len(held)] = held
        count = self.read_into(self._buffer[self._end :])
        self._end += count
        return count > 0
