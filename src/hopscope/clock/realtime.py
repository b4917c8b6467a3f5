# SPDX-License-Identifier: Apache-2.0
"""CLOCK_REALTIME against CLOCK_MONOTONIC of this host: the kernel stamps packets by the one, a trace has the other.

Both are slewed alike (kernel/time/timekeeping.c): they differ by a whole number of ns that only changes when the clock
is set or a leap second comes. The kernel shows that number to root (``/proc/timer_list``, ``.offset`` of clock 1, a
copy that clock_was_set keeps); readings of one clock between two of the other tell it to some tens of ns, and check it.
A timer that is cancelled when the clock is set (TFD_TIMER_CANCEL_ON_SET) tells of every change.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hopscope.clock.phc import Domain, realtime_to_monotonic
from hopscope.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_TIMER_LIST: Final = Path("/proc/timer_list")
# Clock 1 comes after the timers of clock 0, of which a busy CPU has some thousands.
_LOOK_AT_BYTES: Final = 1 << 20
_OFFSET: Final = re.compile(rb"^ clock 1:.*?^  \.offset: +(\d+) nsecs$", re.MULTILINE | re.DOTALL)
_BRACKETS: Final = 20

# include/uapi/linux/timerfd.h, uapi/linux/time.h
_CLOCK_REALTIME: Final = 0
_TFD_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_TIMER_ABSTIME: Final = 1
_TIMER_CANCEL_ON_SET: Final = 2
_ITIMERSPEC: Final = struct.Struct("=qqqq")
_NEVER_S: Final = 1 << 33

_libc = ctypes.CDLL(None, use_errno=True)


class RealtimeClock:
    """What to add to CLOCK_REALTIME of this host for CLOCK_MONOTONIC, for as long as nobody sets it.

    Attributes
    ----------
    to_monotonic
        The difference, with its bound: 0 where the kernel shows it.

    Raises
    ------
    KernelError
        The kernel has no timer that tells of a change (timerfd).
    """

    to_monotonic: Domain

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_REALTIME, _TFD_FLAGS)
        if self._fd < 0:
            raise KernelError(f"No timer to watch the clock: {os.strerror(ctypes.get_errno())}")
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the timer; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def was_set(self) -> bool:
        """Tell whether somebody set the clock since the last call; then the difference has been taken anew."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
        self._look()
        return True

    def _look(self) -> None:
        # The timer first: a change in between is told of by the next call.
        when = _ITIMERSPEC.pack(0, 0, _NEVER_S, 0)
        if _libc.timerfd_settime(self._fd, _TIMER_ABSTIME | _TIMER_CANCEL_ON_SET, when, None) < 0:
            number = ctypes.get_errno()
            # The kernel tells of a change that came before by the same error, once; the timer is armed.
            if number != errno.ECANCELED:
                raise KernelError(f"No timer tells when the clock is set: {os.strerror(number)}")
        self.to_monotonic = difference(read_timer_list)


def read_timer_list() -> bytes:
    """Return the beginning of the kernel's list of timers; nothing where it may not be read."""
    with contextlib.suppress(OSError), _TIMER_LIST.open("rb") as lines:
        return lines.read(_LOOK_AT_BYTES)
    return b""


def difference(timer_list: Callable[[], bytes]) -> Domain:
    """Return CLOCK_MONOTONIC minus CLOCK_REALTIME: the kernel's own figure if readings of both clocks allow it."""
    bracket = realtime_to_monotonic(_BRACKETS)
    found = _OFFSET.search(timer_list())
    if found:
        exact = Domain(-int(found[1]), 0)
        if abs(exact.offset_ns - bracket.offset_ns) <= bracket.bound_ns:
            return exact
    return bracket
