# SPDX-License-Identifier: Apache-2.0
"""A lock that threads get in the order in which they asked for it."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Turns:
    """A context manager that one thread at a time is in.

    :class:`threading.Lock` goes to whoever is quick: who writes large blocks would keep out all others.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    def __enter__(self) -> None:
        """Wait for the turn."""
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        try:
            gate.acquire()
        except BaseException:  # Ctrl-C: the turn may have come all the same
            with self._mutex:
                ours = gate not in self._waiting
                if not ours:
                    self._waiting.remove(gate)
            if ours:
                self._pass_on()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one in."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
