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

_IMPATIENT: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGQUIT})
# What comes this soon is the same Ctrl-C: the terminal sends it to us, and who started us may pass it on.
_ECHO_S: Final = 1.0


class Stop:
    """A flag to wait for, which a signal's handler may set.

    :class:`threading.Event` is none: its handler would wait for a lock that the interrupted code holds.

    Attributes
    ----------
    signal
        The signal that set it, None where none did: the first, but that of a SIGHUP and another one it is the other.
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


def hang_up_is_ignored() -> bool:
    """Tell whether who started us wants us to survive the end of the terminal, as nohup(1) does."""
    return signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yield a flag that SIGINT, SIGTERM, SIGQUIT and SIGHUP set; SIGHUP does not where it is ignored.

    A later one has its usual effect: an output that blocks cannot keep us. A later SIGHUP has none: nobody sends it out
    of impatience, and where a terminal ends, the kernel, sshd and the shell each send one. The handlers before are put
    back at the end.
    """
    stop = Stop()
    numbers = _IMPATIENT if hang_up_is_ignored() else _IMPATIENT | {signal.SIGHUP}
    before = {number: signal.getsignal(number) for number in numbers}
    first_s = float("inf")

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        # What begins anew at SIGHUP ends at another one that comes before it has.
        if stop.signal is None or (stop.signal == signal.SIGHUP and number in _IMPATIENT):
            first_s = time.monotonic()
            stop.signal = number
            stop.set()
        elif number in _IMPATIENT and time.monotonic() - first_s > _ECHO_S:
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
