# SPDX-License-Identifier: Apache-2.0
"""Stamps for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from hopscope.timestamping.stamped import Collected

if TYPE_CHECKING:
    from typing import Self

    from hopscope.timestamping.errqueue import NetworkError
    from hopscope.timestamping.messages import Message
    from hopscope.timestamping.stamped import StampedSocket


class AsyncStamps:
    """Waits for stamps in an event loop: ``async for item in AsyncStamps(stamped)`` yields a `Message` or an error.

    The loop watches a descriptor of its own, and only while someone waits: it does not wake up for data to be read,
    nor over and over for an error that is pending, and reading and writing the socket with the loop is not disturbed.
    The iteration has no end of its own.

    Parameters
    ----------
    stamped
        Stays the caller's. One task at a time.
    """

    def __init__(self, stamped: StampedSocket) -> None:
        self._stamped = stamped
        self._ready: deque[Message | NetworkError] = deque()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message | NetworkError:
        """Return the next message that is complete or given up, or what else was in the queue."""
        while not self._ready:
            found = await self.collect()
            self._ready.extend(found.messages)
            self._ready.extend(found.errors)
        return self._ready.popleft()

    async def collect(self, timeout_s: float | None = None) -> Collected:
        """Return what is there, or the first that comes, as `StampedSocket.collect`; other tasks run meanwhile."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            found = self._stamped.collect()
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if found.messages or found.errors or (remaining_s is not None and remaining_s <= 0):
                return found
            await self._event(remaining_s)

    async def finish(self, timeout_s: float = 1.0) -> Collected:
        """Wait until no send waits for stamps any more, as `StampedSocket.finish`; other tasks run meanwhile."""
        deadline_s = time.monotonic() + timeout_s
        found = Collected([], [])
        while self._stamped.waiting and (remaining_s := deadline_s - time.monotonic()) > 0:
            more = await self.collect(remaining_s)
            found.messages.extend(more.messages)
            found.errors.extend(more.errors)
        rest = self._stamped.finish(0)
        return Collected(found.messages + rest.messages, found.errors + rest.errors)

    async def _event(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        event: asyncio.Future[None] = loop.create_future()
        fd = self._stamped.fileno()
        loop.add_reader(fd, _resolve, event)
        try:
            await asyncio.wait((event,), timeout=timeout_s)
        finally:
            loop.remove_reader(fd)


def _resolve(event: asyncio.Future[None]) -> None:
    if not event.done():
        event.set_result(None)
