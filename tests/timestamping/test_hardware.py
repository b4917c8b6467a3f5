# SPDX-License-Identifier: Apache-2.0
"""The ioctl against a driver that is played here, as no NIC here stamps; the refusals are the kernel's own."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from hopscope.errors import HopscopeError, KernelError, PrivilegeError, UsageError
from hopscope.timestamping import HardwareConfig, HwFilter, HwTx, hardware_config, hardware_stamping
from hopscope.timestamping.device import HWTSTAMP_CONFIG, IFREQ, SIOCGHWTSTAMP, SIOCSHWTSTAMP


class Driver:
    """Keeps what it is given, and stamps more received packets than it is asked to, as drivers may."""

    def __init__(self, *, flags: int = 0, tx: int = 0, rx: int = 0) -> None:
        self.state = (flags, tx, rx)
        self.refuses: dict[int, int] = {}
        self.asked: list[tuple[str, int]] = []

    def ioctl(self, _fd: object, request: int, ifreq: bytes) -> int:
        name, pointer = IFREQ.unpack(ifreq)
        self.asked.append((name.rstrip(b"\0").decode(), request))
        if request in self.refuses:
            raise OSError(self.refuses[request], os.strerror(self.refuses[request]))
        if request == SIOCSHWTSTAMP:
            flags, tx, rx = HWTSTAMP_CONFIG.unpack(ctypes.string_at(pointer, HWTSTAMP_CONFIG.size))
            self.state = (flags, tx, HwFilter.PTP_V2_EVENT if rx == HwFilter.PTP_V2_L4_SYNC else rx)
        ctypes.memmove(pointer, HWTSTAMP_CONFIG.pack(*self.state), HWTSTAMP_CONFIG.size)
        return 0


def play(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> Driver:
    monkeypatch.setattr(fcntl, "ioctl", driver.ioctl)
    return driver


def test_nic_stamps_meanwhile_and_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = play(monkeypatch, Driver(flags=1, tx=HwTx.OFF, rx=HwFilter.NTP_ALL))
    assert hardware_config("eth9") == HardwareConfig(HwTx.OFF, HwFilter.NTP_ALL, 1)
    with hardware_stamping("eth9", rx=HwFilter.PTP_V2_L4_SYNC) as granted:
        assert granted == HardwareConfig(HwTx.ON, HwFilter.PTP_V2_EVENT, 1)
        assert driver.state == (1, HwTx.ON, HwFilter.PTP_V2_EVENT)
    assert driver.state == (1, HwTx.OFF, HwFilter.NTP_ALL)
    assert driver.asked == [("eth9", SIOCGHWTSTAMP)] * 2 + [("eth9", SIOCSHWTSTAMP)] * 2


def test_it_is_put_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = play(monkeypatch, Driver(tx=HwTx.ONESTEP_SYNC, rx=HwFilter.SOME))

    def fail() -> None:
        with hardware_stamping("eth9"):
            assert driver.state == (0, HwTx.ON, HwFilter.ALL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert driver.state == (0, HwTx.ONESTEP_SYNC, HwFilter.SOME)


def test_value_of_a_newer_kernel_is_put_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = play(monkeypatch, Driver(tx=77, rx=99))
    with hardware_stamping("eth9"):
        assert driver.state == (0, HwTx.ON, HwFilter.ALL)
    assert driver.state == (0, 77, 99)


@pytest.mark.parametrize(
    ("number", "kind", "sentence"),
    [
        (errno.EPERM, PrivilegeError, "without CAP_NET_ADMIN"),
        (errno.ERANGE, UsageError, "eth9 cannot stamp these packets"),
        (errno.EOPNOTSUPP, KernelError, "eth9 has no hardware stamps that can be switched"),
        (errno.EBUSY, KernelError, "cannot be switched: Device or resource busy"),
    ],
)
def test_refusal_is_one_sentence_and_nothing_changes(
    number: int, kind: type[HopscopeError], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = play(monkeypatch, Driver(rx=HwFilter.SOME))
    driver.refuses[SIOCSHWTSTAMP] = number
    with pytest.raises(kind, match=sentence), hardware_stamping("eth9"):
        pytest.fail("it was refused")
    assert driver.state == (0, HwTx.OFF, HwFilter.SOME)


def test_what_cannot_be_put_back_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = play(monkeypatch, Driver())
    driver.refuses[SIOCGHWTSTAMP] = errno.EOPNOTSUPP
    with pytest.raises(KernelError), hardware_stamping("eth9"):
        pytest.fail("it was refused")
    assert driver.asked == [("eth9", SIOCGHWTSTAMP)]


def test_interface_without_hardware_stamps_is_told_by_the_kernel() -> None:
    with pytest.raises(KernelError, match="lo has no hardware stamps"), hardware_stamping("lo"):
        pytest.fail("lo has no hardware")


@pytest.mark.parametrize("interface", ["hopscope-none", "a-name-that-is-far-too-long"])
def test_interface_that_is_not_there_is_told(interface: str) -> None:
    with pytest.raises(UsageError, match=f"no interface {interface} "):
        hardware_config(interface)


@pytest.mark.root
def test_the_kernel_refuses_users_without_the_right() -> None:
    script = (
        "from hopscope.timestamping import hardware as h\n"
        "try: h._switched('lo', h.HardwareConfig(0, 0))\n"
        "except h.PrivilegeError as error: print(error)\n"
    )
    assert shutil.which("setpriv")
    command = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The stamping of lo cannot be changed without CAP_NET_ADMIN. ")
