# SPDX-License-Identifier: Apache-2.0
"""Something asks us to end: a signal, or the end of a command."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# What comes this soon is the same Ctrl-C: the terminal sends it to us, and who started us may pass it on.
_ECHO_S: Final = 1.0


class Stop:
    """A flag to wait for, which a signal's handler may set.

    :class:`threading.Event` is none: its handler would wait for a lock that the interrupted code holds.

    Attributes
    ----------
    signal
        The signal that set it, None where none did.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)

    def set(self) -> None:
        """Set it; again is allowed."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, b"!")

    def wait(self, timeout_s: float) -> bool:
        """Return as soon as it is set, or False after a time."""
        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))

    def close(self) -> None:
        """Forget it; nobody may set it any more."""
        os.close(self._read_fd)
        os.close(self._write_fd)


@contextlib.contextmanager
def stop_on_signal(*others: signal.Signals) -> Iterator[Stop]:
    """Yield a flag that SIGINT, SIGTERM and `others` set.

    A later one has its usual effect: an output that blocks cannot keep us. The handlers before are put back at the end.
    """
    stop = Stop()
    before = {number: signal.getsignal(number) for number in (*_SIGNALS, *others)}
    first_s = float("inf")

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        if stop.signal is None:
            first_s = time.monotonic()
            stop.signal = number
            stop.set()
        elif time.monotonic() - first_s > _ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
