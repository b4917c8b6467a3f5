# SPDX-License-Identifier: Apache-2.0
"""The server's side of the processes that read the recording: who asks them waits no longer than it makes sense."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from hopscope.verbs.web.keeper import answered_how, ask_for, ask_how, received
from hopscope.verbs.web.wire import STOP, Frames, Incomplete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from socket import socket

# A question that takes longer is given up, so that others are answered; a download may take as long as it likes,
_LONGEST_S: Final = 60.0
# and so may what is prepared once, and is then at hand: it is completed even where nobody waits for it any more.
_PREPARED: Final = frozenset({"timeline", "details"})
_FREE: Final = _PREPARED | {"export"}
# From when it is to stop until the process is replaced: it is in an operation that cannot be interrupted.
_STOPPING_S: Final = 5.0
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Keeper:
    """The process that starts those that read.

    Parameters
    ----------
    line
        To it.
    """

    def __init__(self, line: socket) -> None:
        self._line = line
        self._turn = asyncio.Lock()

    async def start(self, number: int) -> socket:
        """Have a process started, or replaced, and return the socket to ask it."""
        async with self._turn:
            ask_for(self._line, number)
            await self._answer()
            return received(self._line)

    async def how_ended(self, number: int) -> str:
        """Return how a process has ended, as the end of a sentence."""
        async with self._turn:
            ask_how(self._line, number)
            await self._answer()
            return answered_how(self._line)

    async def _answer(self) -> None:
        loop, coming = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._line, coming.set)
        try:
            await coming.wait()
        finally:
            loop.remove_reader(self._line)


class Reader:
    """The other end of a process that reads the recording; it answers one question after the other.

    Parameters
    ----------
    number
        Of the process.
    line
        To it.
    keeper
        Replaces it.
    opening
        Whether it has yet to say that the recording is open.
    """

    def __init__(self, number: int, line: socket, keeper: Keeper, *, opening: bool) -> None:
        self._number = number
        self._line: socket | None = line
        self._keeper = keeper
        self._opening = opening
        self._turn = asyncio.Lock()
        self._opened: asyncio.Task[_Streams] | None = None
        self._finishing: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def asked(self, question: dict[str, Any]) -> AsyncIterator[tuple[dict[str, Any], AsyncIterator[bytes]]]:
        """Give the head of the answer, and its parts; what nobody took of it at the end is not computed.

        Raises
        ------
        TimeoutError
            It took too long.
        Incomplete, OSError
            The process has ended.
        """
        await self._turn.acquire()
        answer, is_prepared = None, question.get("ask") in _PREPARED
        self._opened = self._opened or asyncio.create_task(self._open())
        try:
            reader, writer = await asyncio.shield(self._opened)
            answer = Frames(reader)
            writer.write(json.dumps(question).encode() + b"\n")
            async with asyncio.timeout(None if question.get("ask") in _FREE else _LONGEST_S):
                _, head = await anext(answer)
                yield json.loads(head), _payloads(answer)
        finally:
            # Whoever asked does not wait for it, and may be cancelled again.
            self._finishing = asyncio.create_task(self._finish(self._opened, answer, is_prepared=is_prepared))

    async def ended(self, error: Exception) -> str:
        """Return a sentence on why there is no answer, where asking ended with this error."""
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            return f"No process can be started that reads the recording: {error.strerror}. Ask again later."
        how = "has ended"
        with contextlib.suppress(OSError):  # so has who would know
            how = await self._keeper.how_ended(self._number)
        return f"The process that reads the recording {how} before it had answered. Ask again: another one is started."

    def close(self) -> None:
        """Have the process end, if it does not compute; another one is started when it is asked again."""
        if self._opened and self._opened.done() and not self._opened.exception():
            self._opened.result()[1].close()
        self._line = self._opened = None

    async def _finish(self, opened: asyncio.Task[_Streams], answer: Frames | None, *, is_prepared: bool) -> None:
        """Let the next one ask, when the process is ready for it."""
        try:
            if answer:
                await _drain(answer, opened.result()[1], is_prepared=is_prepared)
            elif opened.done():
                opened.result()
        except (Incomplete, OSError, TimeoutError):
            self.close()
        finally:
            self._turn.release()

    async def _open(self) -> _Streams:
        """Connect to the process, another one if there is none any more, and wait until it has the recording open."""
        opening = self._opening or self._line is None
        streams = await asyncio.open_connection(sock=self._line or await self._keeper.start(self._number))
        if opening:
            async for _ in Frames(streams[0]):
                pass
        self._opening = False
        return streams


async def _drain(answer: Frames, writer: asyncio.StreamWriter, *, is_prepared: bool) -> None:
    """Take the rest of an answer, of which nobody needs anything, unless the process is to have it prepared."""
    if not (answer.has_ended or is_prepared):
        writer.write(STOP)
    async with asyncio.timeout(None if is_prepared else _STOPPING_S):
        async for _ in answer:
            pass


async def _payloads(answer: Frames) -> AsyncIterator[bytes]:
    async for _, payload in answer:
        yield payload


async def whole(reader: Reader, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return the head of an answer, and all of its parts; a sentence where there is none."""
    try:
        async with reader.asked(question) as (head, parts):
            return head, b"".join([part async for part in parts])
    except TimeoutError:
        return _sentence(f"This took longer than {_LONGEST_S:.0f} s and was given up. Select a shorter period.")
    except (Incomplete, StopAsyncIteration, OSError) as error:
        return _sentence(await reader.ended(error))


def _sentence(text: str) -> tuple[dict[str, Any], bytes]:
    return {"status": 502, "type": "application/json"}, json.dumps({"error": text}).encode()
