# SPDX-License-Identifier: Apache-2.0
"""Peers in this process: a line of messages is two queues, and what passes is text, as between hosts."""

from __future__ import annotations

import json
import queue
import threading
from typing import TYPE_CHECKING, Any

from hopscope.clock.peer import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack


class QueueLine:
    """One end of a line."""

    def __init__(self, out: queue.SimpleQueue[str | None], into: queue.SimpleQueue[str | None]) -> None:
        self._out = out
        self._into = into
        self._closed = False

    def send(self, message: Mapping[str, Any]) -> None:
        self._out.put(json.dumps(message))

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        if self._closed:
            return None
        try:
            text = self._into.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        return None if text is None else json.loads(text)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._out.put(None)
            self._into.put(None)


def line() -> tuple[QueueLine, QueueLine]:
    """Return both ends of a line."""
    there: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    back: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    return QueueLine(there, back), QueueLine(back, there)


def opener(stack: ExitStack, serving: Callable[[QueueLine], None] = serve) -> Callable[[], QueueLine]:
    """Return what starts a peer in a thread and hands out the line to it; all end with the stack."""

    def open_one() -> QueueLine:
        ours, theirs = line()
        thread = threading.Thread(target=serving, args=(theirs,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(ours.close)
        return ours

    return open_one
