# SPDX-License-Identifier: Apache-2.0
"""Work that waits for its turn in a thread of its own, so that whoever hands it over can go on at once."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Backlog(Generic[T]):
    """Hands things over to a thread, in order.

    Parameters
    ----------
    consume
        Called in the thread with each. What it raises ends the thread, and is raised to whoever hands over next.
    most_bytes
        So much may wait; who has more to hand over waits himself.
    """

    def __init__(self, consume: Callable[[T], None], most_bytes: int) -> None:
        self._consume = consume
        self._most_bytes = most_bytes
        self._bytes = 0
        self._things: deque[tuple[T, int]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="hopscope-backlog", daemon=True)
        self._thread.start()

    def put(self, thing: T, size_bytes: int) -> None:
        """Hand something over."""
        with self._changed:
            while self._bytes and self._bytes + size_bytes > self._most_bytes and not self._error:
                self._changed.wait()
            if self._error:
                raise self._error
            self._things.append((thing, size_bytes))
            self._bytes += size_bytes
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until all is done; again is allowed."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join()
        if self._error:
            raise self._error

    def _work(self) -> None:
        try:
            while (thing := self._next()) is not None:
                self._consume(thing[0])
                with self._changed:
                    self._bytes -= thing[1]
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 # it is raised in the other thread
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next(self) -> tuple[T, int] | None:
        with self._changed:
            while not self._things and not self._ends:
                self._changed.wait()
            return self._things.popleft() if self._things else None
