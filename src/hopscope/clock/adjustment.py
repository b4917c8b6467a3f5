# SPDX-License-Identifier: Apache-2.0
"""How the kernel runs this host's clocks, and what a time daemon has told it: adjtimex(2), which only reads here.

CLOCK_MONOTONIC runs faster or slower than the counter below it by what a daemon asks for: a frequency, the length of a
tick (chrony), an offset that is worked off bit by bit (ntpd, systemd-timesyncd; `ntp_offset_chunk` of
kernel/time/ntp.c), or one by adjtime(3). Who compares two clocks by lines has to know when that changes.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from dataclasses import dataclass
from typing import Final

from hopscope.errors import KernelError

# include/uapi/linux/timex.h, struct timex: modes, offset, freq, maxerror, esterror, status, constant, precision,
# tolerance, time (two), tick, ppsfreq, jitter, shift, stabil, jitcnt, calcnt, errcnt, stbcnt, tai, and 11 to come.
TIMEX: Final = struct.Struct("=I4xqqqqi4xqqqqqqqqi4xqqqqqi44x")
ADJ_OFFSET_SS_READ: Final = 0xA001
STA_PLL: Final = 0x0001
STA_UNSYNC: Final = 0x0040
STA_NANO: Final = 0x2000
_OFFSET, _FREQ, _MAX_ERROR, _EST_ERROR, _STATUS, _CONSTANT = 1, 2, 3, 4, 5, 6
_TICK, _TAI = 11, 20
_USUAL_TICK_US: Final = 10_000
_SHIFT_PLL: Final = 2
# What adjtime works off in a second (MAX_TICKADJ).
_ADJTIME: Final = 500e-6

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the kernel does to the clocks, at one moment.

    Attributes
    ----------
    at_ns
        When, CLOCK_MONOTONIC.
    rate
        By how much CLOCK_MONOTONIC is made faster than its counter, s per s.
    synchronized
        A time daemon says that CLOCK_REALTIME is right (no STA_UNSYNC).
    max_error_ns, estimated_error_ns
        How wrong the daemon says that it is. The first grows by 500 ppm from one word of the daemon to the next.
    tai_offset_s
        TAI minus UTC, 0 if nobody told the kernel.
    """

    at_ns: int
    rate: float
    synchronized: bool
    max_error_ns: int
    estimated_error_ns: int
    tai_offset_s: int


def read() -> Adjustment:
    """Ask the kernel.

    Raises
    ------
    KernelError
        It does not say.
    """
    fields = _adjtimex(0)
    status = fields[_STATUS]
    offset_ns = fields[_OFFSET] * (1 if status & STA_NANO else 1000)
    rate = fields[_FREQ] / 65_536e6 + (fields[_TICK] - _USUAL_TICK_US) / _USUAL_TICK_US
    if status & STA_PLL:
        rate += offset_ns / 2 ** (_SHIFT_PLL + fields[_CONSTANT]) / 1e9
    rest_us = _adjtimex(ADJ_OFFSET_SS_READ)[_OFFSET]
    rate += max(-_ADJTIME, min(_ADJTIME, rest_us / 1e6))
    return Adjustment(
        time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        rate,
        synchronized=not status & STA_UNSYNC,
        max_error_ns=fields[_MAX_ERROR] * 1000,
        estimated_error_ns=fields[_EST_ERROR] * 1000,
        tai_offset_s=fields[_TAI],
    )


def _adjtimex(modes: int) -> tuple[int, ...]:
    buffer = ctypes.create_string_buffer(TIMEX.pack(modes, *[0] * 20), TIMEX.size)
    if _libc.adjtimex(buffer) < 0:
        raise KernelError(f"The kernel does not say how it runs its clocks: {os.strerror(ctypes.get_errno())}")
    return TIMEX.unpack(buffer.raw)
