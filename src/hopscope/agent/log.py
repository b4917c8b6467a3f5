# SPDX-License-Identifier: Apache-2.0
"""What a listening agent says: who came and who was turned away, in so few lines that nobody can fill a disk."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from hopscope.agent.message import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_LINE_CHARS: Final = 400
_MOST_LINES: Final = 30
_EACH_S: Final = 10.0


class Log:
    """Writes lines; those beyond 30 in 10 s are counted instead.

    Parameters
    ----------
    out
        Where to.
    now_s
        A clock.
    """

    def __init__(self, out: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._now_s = now_s
        self._lock = threading.Lock()
        self._since_s = now_s()
        self._lines = 0

    def say(self, who: str, what: str) -> None:
        """Write a line; whatever text of others is in it comes out printable."""
        with self._lock:
            if self._now_s() - self._since_s >= _EACH_S:
                self._tell_left_out()
                self._since_s, self._lines = self._now_s(), 0
            self._lines += 1
            if self._lines <= _MOST_LINES:
                self._write(f"{who}: {what}" if who else what)

    def close(self) -> None:
        """Say what was left out at last."""
        with self._lock:
            self._tell_left_out()
            self._lines = 0

    def _tell_left_out(self) -> None:
        if self._lines > _MOST_LINES:
            self._write(f"not shown: {self._lines - _MOST_LINES} more within {_EACH_S:.0f} s")

    def _write(self, line: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        self._out.write(f"{stamp} UTC {printable(line, _LINE_CHARS)}\n")
        self._out.flush()
