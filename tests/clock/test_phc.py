# SPDX-License-Identifier: Apache-2.0
"""Recorded answers of the ioctls; in a guest of vmtest they run against real clocks (test_rx_nic_stamps.py)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from hopscope.clock import phc
from hopscope.clock.phc import Domain, HardwareClock, Window
from hopscope.clock.relation import ClockReading
from hopscope.errors import KernelError
from tests import headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECOND = 1_000_000_000
# Windows of CLOCK_MONOTONIC that a guest's igb gave: the first is slow, for nothing is in the caches.
RECORDED = [
    Window(25_104_318_498, 1_795_263_408_318_498_108, 25_104_357_536),
    Window(25_104_357_912, 1_795_263_408_318_478_018, 25_104_358_924),
    Window(25_104_359_251, 1_795_263_408_318_477_848, 25_104_359_842),
]


class Device:
    """Answers the requests that it knows as the kernel does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: Sequence[tuple[int, int]]) -> None:
        self._known = known
        real = os.open
        monkeypatch.setattr(os, "open", lambda *_: real(os.devnull, os.O_RDONLY))
        monkeypatch.setattr(fcntl, "ioctl", self.answer)

    def answer(self, _fd: int, request: int, buffer: bytearray) -> None:
        samples, clock, *_ = struct.unpack_from("=IiII", buffer)
        if request == phc.PTP_SYS_OFFSET_PRECISE:
            samples = clock = 0
        if (request, clock) not in self._known:
            known = any(request == other for other, _ in self._known)
            code = errno.EINVAL if known else errno.EOPNOTSUPP
            raise OSError(code, os.strerror(code))
        mark = 7 * SECOND + 5
        times = [mark, mark - 3] if not samples else [mark + index for index in range(3 * samples)]
        if request == phc.PTP_SYS_OFFSET:
            times = times[: 2 * samples + 1]
        packed = b"".join(struct.pack("=qII", *divmod(at, SECOND), 0) for at in times)
        start = 16 if samples else 0
        buffer[start : start + len(packed)] = packed


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_REALTIME is ahead of CLOCK_MONOTONIC by 5 s, known to 40 ns."""
    monkeypatch.setattr(phc, "realtime_to_monotonic", lambda: Domain(-5 * SECOND, 40))


def test_the_smallest_window_counts_and_half_of_it_is_the_bound() -> None:
    found = phc.reading_of(RECORDED, Domain(0, 0))
    assert found == ClockReading(1_795_263_408_318_477_848, 25_104_359_546, 296)
    assert phc.reading_of(RECORDED, Domain(-100, 40)) == ClockReading(1_795_263_408_318_477_848, 25_104_359_446, 336)


@pytest.mark.parametrize(
    ("known", "number", "expected"),
    [
        ((phc.PTP_SYS_OFFSET_PRECISE, 0), 0, ClockReading(7 * SECOND + 5, 2 * SECOND + 2, 40)),
        ((phc.PTP_SYS_OFFSET_EXTENDED, time.CLOCK_MONOTONIC), 1, ClockReading(7 * SECOND + 6, 7 * SECOND + 6, 1)),
        ((phc.PTP_SYS_OFFSET_EXTENDED, time.CLOCK_REALTIME), 2, ClockReading(7 * SECOND + 6, 2 * SECOND + 6, 41)),
        ((phc.PTP_SYS_OFFSET, time.CLOCK_REALTIME), 3, ClockReading(7 * SECOND + 6, 2 * SECOND + 6, 41)),
    ],
)
def test_the_best_request_that_is_there_is_used(
    known: tuple[int, int], number: int, expected: ClockReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device(monkeypatch, [known])
    with HardwareClock(3) as clock:
        assert clock.method is phc.METHODS[number]
        assert clock.read() == expected


def test_all_windows_of_an_answer_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, [(phc.PTP_SYS_OFFSET_EXTENDED, 0), (phc.PTP_SYS_OFFSET, 0)])
    mark = 7 * SECOND + 5
    extended, basic = (phc.METHODS[number].windows(0) for number in (2, 3))
    assert extended == [Window(mark + at, mark + at + 1, mark + at + 2) for at in range(0, 75, 3)]
    assert basic == [Window(mark + at, mark + at + 1, mark + at + 2) for at in range(0, 50, 2)]


def test_a_clock_that_cannot_be_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, [])
    with pytest.raises(KernelError, match=r"/dev/ptp3 cannot be read together"):
        HardwareClock(3)


def test_a_clock_that_went_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, [(phc.PTP_SYS_OFFSET, 0)])

    def gone(*_: object) -> NoReturn:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    with HardwareClock(3) as clock:
        monkeypatch.setattr(fcntl, "ioctl", gone)
        with pytest.raises(KernelError, match="No such device"):
            clock.read()
    with pytest.raises(KernelError, match="No such device"):
        HardwareClock(3)


def test_there_is_no_such_device() -> None:
    with pytest.raises(KernelError, match="/dev/ptp4321 cannot be opened: No such file"):
        HardwareClock(4321)


def test_a_step_of_the_wall_clock_during_a_reading_is_seen_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = iter([0, 0, 3600, 3600, 3600, 3600])
    monkeypatch.setattr(phc, "realtime_to_monotonic", lambda: Domain(next(offsets) * SECOND, 40))
    windows = iter([[Window(10, 10, 10)], [Window(2 * SECOND, 20, 2 * SECOND + 2)], []])
    # Good at once; then one whose offset changed, and the one that counts.
    assert phc.read(lambda: next(windows), of_realtime=True) == ClockReading(10, 10, 40)
    offsets = iter([0, 3600, 3600, 3600])
    windows = iter([[Window(0, 1, 0)], [Window(10, 20, 12)]])
    assert phc.read(lambda: next(windows), of_realtime=True) == ClockReading(20, 3600 * SECOND + 11, 41)


def test_a_wall_clock_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = iter(range(100))
    monkeypatch.setattr(phc, "realtime_to_monotonic", lambda: Domain(next(offsets) * SECOND, 40))
    with pytest.raises(KernelError, match="being set all the time"):
        phc.read(lambda: [Window(0, 0, 0)], of_realtime=True)


def test_the_offset_of_the_wall_clock_is_bracketed(monkeypatch: pytest.MonkeyPatch) -> None:
    def clocks() -> Iterator[int]:
        for width_ns in (900, 300, 31, *[500] * 7):
            yield from (SECOND, 6 * SECOND, SECOND + width_ns)

    readings = clocks()
    monkeypatch.undo()
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: next(readings))
    assert phc.realtime_to_monotonic() == Domain(-5 * SECOND + 15, 16)


def test_constants_and_layouts_are_those_of_the_kernels_headers() -> None:
    names = ("PTP_SYS_OFFSET", "PTP_SYS_OFFSET_PRECISE", "PTP_SYS_OFFSET_EXTENDED")
    values = {name: getattr(phc, name) for name in names} | {
        "PTP_MAX_SAMPLES": phc.MAX_SAMPLES,
        "sizeof(struct ptp_clock_time)": phc._TIME.size,
        "offsetof(struct ptp_clock_time, nsec)": 8,
        "offsetof(struct ptp_sys_offset, ts)": phc._HEADER.size,
        "offsetof(struct ptp_sys_offset_extended, ts)": phc._HEADER.size,
        "offsetof(struct ptp_sys_offset_extended, clockid)": 4,
        "offsetof(struct ptp_sys_offset_precise, device)": 0,
        "offsetof(struct ptp_sys_offset_precise, sys_realtime)": 16,
    }
    headers.assert_values(("stddef", "linux/ptp_clock"), values)
