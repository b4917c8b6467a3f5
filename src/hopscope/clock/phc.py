# SPDX-License-Identifier: Apache-2.0
"""Read a NIC's hardware clock (PTP hardware clock, ``/dev/ptpN``) together with CLOCK_MONOTONIC.

The kernel reads both clocks in turn (include/uapi/linux/ptp_clock.h, drivers/ptp/ptp_chardev.c). The device's reading
lies somewhere in the window between two readings of the system's clock: half of the window is the bound. Of several
readings the one with the smallest window counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from hopscope.clock.relation import ClockReading
from hopscope.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MAX_SAMPLES: Final = 25
_HEADER: Final = struct.Struct("=IiII")  # n_samples, clockid (once reserved), reserved
_TIME: Final = struct.Struct("=qII")
BASIC_SIZE: Final = _HEADER.size + (2 * MAX_SAMPLES + 1) * _TIME.size
EXTENDED_SIZE: Final = _HEADER.size + 3 * MAX_SAMPLES * _TIME.size
PRECISE_SIZE: Final = 3 * _TIME.size + 16
_WRITE, _READ_WRITE = 1, 3


def _request(direction: int, number: int, size: int) -> int:
    # include/uapi/asm-generic/ioctl.h, as on x86-64 and arm64
    return direction << 30 | size << 16 | ord("=") << 8 | number


PTP_SYS_OFFSET: Final = _request(_WRITE, 5, BASIC_SIZE)
PTP_SYS_OFFSET_PRECISE: Final = _request(_READ_WRITE, 8, PRECISE_SIZE)
PTP_SYS_OFFSET_EXTENDED: Final = _request(_READ_WRITE, 9, EXTENDED_SIZE)

# The driver or the kernel has no such request, or not of this clock.
_NOT_THERE: Final = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}
_ATTEMPTS: Final = 3
_BRACKETS: Final = 10


class Window(NamedTuple):
    """The device's clock between two readings of a clock of the system, in ns."""

    before_ns: int
    device_ns: int
    after_ns: int

    @property
    def width_ns(self) -> int:
        """How long the reading took, by the system's clock."""
        return self.after_ns - self.before_ns


class Domain(NamedTuple):
    """CLOCK_MONOTONIC minus CLOCK_REALTIME, and how far that may be off."""

    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class Method:
    """A way to read both clocks.

    Attributes
    ----------
    name
        The request's.
    windows
        Asks the device behind a file descriptor.
    of_realtime
        The system's clock is CLOCK_REALTIME, not CLOCK_MONOTONIC.
    """

    name: str
    windows: Callable[[int], list[Window]]
    of_realtime: bool


def _precise(fd: int) -> list[Window]:
    """Ask for a pair that the hardware took at one instant."""
    device_ns, realtime_ns = _ask(fd, PTP_SYS_OFFSET_PRECISE, b"", PRECISE_SIZE, 0, 2)
    return [Window(realtime_ns, device_ns, realtime_ns)]


def _extended(fd: int, clock: int) -> list[Window]:
    """Ask for readings that the driver brackets as closely as it can."""
    header = _HEADER.pack(MAX_SAMPLES, clock, 0, 0)
    times = _ask(fd, PTP_SYS_OFFSET_EXTENDED, header, EXTENDED_SIZE, _HEADER.size, 3 * MAX_SAMPLES)
    return [Window(*times[at : at + 3]) for at in range(0, len(times), 3)]


def _basic(fd: int) -> list[Window]:
    """Ask for readings of both clocks in turn."""
    header = _HEADER.pack(MAX_SAMPLES, 0, 0, 0)
    times = _ask(fd, PTP_SYS_OFFSET, header, BASIC_SIZE, _HEADER.size, 2 * MAX_SAMPLES + 1)
    return [Window(*times[at : at + 3]) for at in range(0, len(times) - 1, 2)]


# The best first. Older kernels refuse any other clock than CLOCK_REALTIME.
METHODS: Final = (
    Method("PTP_SYS_OFFSET_PRECISE", _precise, of_realtime=True),
    Method("PTP_SYS_OFFSET_EXTENDED", lambda fd: _extended(fd, time.CLOCK_MONOTONIC), of_realtime=False),
    Method("PTP_SYS_OFFSET_EXTENDED", lambda fd: _extended(fd, time.CLOCK_REALTIME), of_realtime=True),
    Method("PTP_SYS_OFFSET", _basic, of_realtime=True),
)


class HardwareClock:
    """An open hardware clock.

    Parameters
    ----------
    index
        N of ``/dev/ptpN``.

    Attributes
    ----------
    method
        The best way to read it that the kernel and the driver have.

    Raises
    ------
    KernelError
        It cannot be opened or read.
    """

    def __init__(self, index: int) -> None:
        self._path = f"/dev/ptp{index}"
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise KernelError(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            self.method = self._best_method()
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def read(self) -> ClockReading:
        """Return both clocks at one instant.

        Raises
        ------
        KernelError
            The device went away, or CLOCK_REALTIME is set all the time.
        """
        try:
            return read(lambda: self.method.windows(self._fd), of_realtime=self.method.of_realtime)
        except OSError as error:
            raise KernelError(f"{self._path} cannot be read: {error.strerror}") from error

    def _best_method(self) -> Method:
        for method in METHODS:
            try:
                method.windows(self._fd)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise KernelError(f"{self._path} cannot be read: {error.strerror}") from error
            else:
                return method
        raise KernelError(f"{self._path} cannot be read together with the system's clock")


def read(windows: Callable[[], list[Window]], *, of_realtime: bool) -> ClockReading:
    """Return the reading with the smallest window, in CLOCK_MONOTONIC.

    Raises
    ------
    KernelError
        CLOCK_REALTIME was set during each attempt.
    """
    if not of_realtime:
        return reading_of(windows(), Domain(0, 0))
    for _ in range(_ATTEMPTS):
        before = realtime_to_monotonic()
        found = windows()
        after = realtime_to_monotonic()
        # Both clocks are slewed alike: the offset is constant, but for a step.
        if abs(after.offset_ns - before.offset_ns) <= before.bound_ns + after.bound_ns:
            return reading_of(found, min(before, after, key=lambda domain: domain.bound_ns))
    raise KernelError("CLOCK_REALTIME is being set all the time", "See what sets it, and run hopscope again")


def reading_of(windows: list[Window], domain: Domain) -> ClockReading:
    """Return the best of some windows as a reading."""
    best = min(windows, key=lambda window: window.width_ns)
    middle_ns = (best.before_ns + best.after_ns) // 2
    return ClockReading(best.device_ns, middle_ns + domain.offset_ns, -(-best.width_ns // 2) + domain.bound_ns)


def realtime_to_monotonic(brackets: int = _BRACKETS) -> Domain:
    """Return the smallest of several brackets of CLOCK_REALTIME by CLOCK_MONOTONIC."""
    found = []
    for _ in range(brackets):
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        realtime_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        found.append(Domain((before_ns + after_ns) // 2 - realtime_ns, -(-(after_ns - before_ns) // 2)))
    return min(found, key=lambda domain: domain.bound_ns)


def _ask(fd: int, request: int, header: bytes, size: int, offset: int, count: int) -> list[int]:  # noqa: PLR0913, PLR0917
    answer = bytearray(header.ljust(size, b"\0"))
    fcntl.ioctl(fd, request, answer)
    times = _TIME.iter_unpack(answer[offset : offset + count * _TIME.size])
    return [seconds * 1_000_000_000 + nanoseconds for seconds, nanoseconds, _ in times]
