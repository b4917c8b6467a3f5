# SPDX-License-Identifier: Apache-2.0
"""What passes between the web server and a process that reads a recording: questions in JSON, answers in frames.

A question is one line. Its answer is a head in JSON, any number of parts, and an end, each with its length before it.
An empty line asks to end the answer soon, whatever is missing.
Neither side trusts the other: lengths are limited, and a question is checked as a command line would be.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

if TYPE_CHECKING:
    import asyncio

_HEAD: Final = struct.Struct("!cI")
_PART: Final = 1 << 16
_MOST: Final = 1 << 24
# Processes that read the recording: for the panels, for what takes long, and for what is prepared for the timeline.
READERS: Final = 3
# A line of more is no question.
LONGEST: Final = 1 << 16
# The line after a question of which nobody waits for the answer any more.
STOP: Final = b"\n"


class Answerer:
    """Writes one answer; a file that can be written to, for what writes files.

    Parameters
    ----------
    out
        To the server.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._begun = False
        self._waiting = bytearray()

    def begin(self, head: dict[str, Any]) -> None:
        """Say what follows; only the first is sent."""
        if not self._begun:
            self._begun = True
            self._send(b"h", json.dumps(head).encode())

    def write(self, data: Any, /) -> int:  # noqa: ANN401 # any buffer
        """Add to the answer."""
        self._waiting += data
        while len(self._waiting) >= _PART:
            self._send(b"d", bytes(self._waiting[:_PART]))
            del self._waiting[:_PART]
        return len(data)

    def flush(self) -> None:
        """Do nothing: parts are sent when they are large enough."""

    def end(self) -> None:
        """End the answer."""
        self._send(b"d", bytes(self._waiting))
        self._send(b"e", b"")
        self._out.flush()

    def _send(self, kind: bytes, payload: bytes) -> None:
        self._out.write(_HEAD.pack(kind, len(payload)) + payload)


class Incomplete(Exception):  # noqa: N818 # what became of the answer
    """The other side ended before its answer did."""


class Frames:
    """One answer, as it comes: its head (``h``) and its parts (``d``).

    Who waits for the next one can be cancelled, and another can go on.

    Parameters
    ----------
    reader
        From the process that answers.

    Attributes
    ----------
    has_ended
        Whether all of it has come.

    Raises
    ------
    Incomplete
        While iterating: the other side ends before its answer does, or sends what is none.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._head: tuple[bytes, int] | None = None
        self.has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[bytes, bytes]:
        if self.has_ended:
            raise StopAsyncIteration
        try:
            if self._head is None:
                self._head = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            kind, length = self._head
            if length > _MOST:
                raise Incomplete
            payload = await self._reader.readexactly(length)
        except (EOFError, OSError) as error:
            raise Incomplete from error
        self._head = None
        if kind == b"e":
            self.has_ended = True
            raise StopAsyncIteration
        return kind, payload
