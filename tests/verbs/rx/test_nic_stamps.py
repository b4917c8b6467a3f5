# SPDX-License-Identifier: Apache-2.0
"""The hop from the NIC, by real stamps and clocks: Intel's NICs as QEMU makes them, in a guest of vmtest.

QEMU's igb stamps PTP's Sync messages alone, and its driver cannot make it stamp all. It is done with a stamp when the
sender's identity is read (RXSATRH), which the driver never does: the test reads it, or there would be one stamp.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hopscope.clock import phc
from hopscope.errors import KernelError
from hopscope.kernel.nic import timestamp_info
from hopscope.lab import Namespace
from hopscope.timestamping.device import StampConfig, set_stamp_config, stamp_config
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import all_discarded, histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root

SECOND = 1_000_000_000
IGB, E1000E = "0x10c9", "0x10d3"
PTP_V2_EVENT = 12
NONE = 0
ALL = 1
_RXSATRH = 0xB630
_PTP_ETHERTYPE = 0x88F7
_SYNC = struct.pack(">BBH", 0, 2, 44) + bytes(40)
_OTHER = struct.pack(">BBH", 9, 2, 44) + bytes(40)  # a Delay_Resp, which is no event
_SCM_TIMESTAMPING = 37
_FLAGS = (1 << 2) | (1 << 3) | (1 << 4) | (1 << 6)  # receive: hardware and software, both raw
_ADJ_SETOFFSET, _ADJ_FREQUENCY, _ADJ_NANO = 0x100, 0x2, 0x2000
MESSAGES = 23


@dataclass
class Link:
    """Two NICs on one hub; the tests look at the one that receives."""

    sender: str
    receiver: str
    out: socket.socket
    arriving: socket.socket
    registers: memoryview

    @property
    def ifindex(self) -> int:
        return socket.if_nametoindex(self.receiver)

    @property
    def clock(self) -> int:
        index = timestamp_info(self.receiver).phc_index
        assert index is not None
        return index

    def send(self, message: bytes = _SYNC) -> tuple[int, int]:
        """Send a message, and return the stamps that the receiving socket has of it: the NIC's, and CLOCK_REALTIME."""
        address = bytes.fromhex(Path(f"/sys/class/net/{self.receiver}/address").read_text().strip().replace(":", ""))
        self.out.send(address + bytes.fromhex("020000000009") + _PTP_ETHERTYPE.to_bytes(2, "big") + message)
        _, ancillary, _, _ = self.arriving.recvmsg(200, 200)
        _ = self.registers[_RXSATRH // 4]
        (stamps,) = [data for _, kind, data in ancillary if kind == _SCM_TIMESTAMPING and len(data) == 48]
        seconds, nanoseconds, _, _, nic_seconds, nic_nanoseconds = struct.unpack("6q", stamps)
        return nic_seconds * SECOND + nic_nanoseconds, seconds * SECOND + nanoseconds


def devices(kind: str) -> list[Path]:
    """Return the PCI devices of a kind."""
    found = sorted(Path("/sys/bus/pci/devices").iterdir()) if "HOPSCOPE_VM" in os.environ else []
    return [path for path in found if (path / "device").read_text().strip() == kind]


def interface(device: Path) -> str:
    names = [path.name for path in (device / "net").glob("*")]
    assert names, f"{device} has no driver; an older cache of vmtest lacks modules, --refresh renews it"
    subprocess.run(["ip", "link", "set", names[0], "up"], check=True)
    return names[0]


def wait_for_link(name: str) -> None:
    for _ in range(200):
        if Path(f"/sys/class/net/{name}/operstate").read_text().strip() == "up":
            return
        time.sleep(0.1)
    pytest.fail(f"{name} has no link")


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    if len(devices(IGB)) < 2:
        pytest.skip("needs two NICs of QEMU's igb; vmtest gives them to one kernel")
    sender, receiver = (interface(device) for device in devices(IGB))
    wait_for_link(sender)
    wait_for_link(receiver)
    set_stamp_config(receiver, StampConfig(0, 0, PTP_V2_EVENT))
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_PTP_ETHERTYPE)) as arriving,
        (devices(IGB)[1] / "resource0").open("r+b", buffering=0) as bar,
        mmap.mmap(bar.fileno(), 0x20000, prot=mmap.PROT_READ) as mapped,
        memoryview(mapped) as octets,
        octets.cast("I") as registers,
    ):
        out.bind((sender, 0))
        arriving.bind((receiver, _PTP_ETHERTYPE))
        arriving.setsockopt(socket.SOL_SOCKET, _SCM_TIMESTAMPING, _FLAGS)
        arriving.settimeout(20)
        yield Link(sender, receiver, out, arriving, registers)
    set_stamp_config(receiver, StampConfig(0, 0, NONE))


def run(link: Link, **options: object) -> RxCollector:
    inode = Path("/proc/self/ns/net").stat().st_ino
    return RxCollector(RxOptions(interfaces=[(link.ifindex, inode)], **options))  # type: ignore[arg-type]


class Timex(ctypes.Structure):
    """``struct timex`` as far as it is used; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("errors", ctypes.c_long * 2),
        ("status", ctypes.c_int),
        ("constants", ctypes.c_long * 3),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
        ("rest", ctypes.c_char * 256),
    )


@contextlib.contextmanager
def opened(index: int) -> Iterator[int]:
    """Yield the clock id of a hardware clock (FD_TO_CLOCKID of the kernel's testptp.c)."""
    fd = os.open(f"/dev/ptp{index}", os.O_RDWR)
    try:
        yield (~fd << 3) | 3
    finally:
        os.close(fd)


def adjust(index: int, change: Timex) -> None:
    with opened(index) as clock:
        assert ctypes.CDLL(None, use_errno=True).clock_adjtime(clock, ctypes.byref(change)) >= 0, ctypes.get_errno()


def step(index: int, by_s: int, by_ns: int = 0) -> None:
    adjust(index, Timex(modes=_ADJ_SETOFFSET | _ADJ_NANO, seconds=by_s, nanoseconds=by_ns))


def monotonic_of_realtime_ns() -> int:
    before_ns, realtime_ns, after_ns = min(
        ((time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(20)), key=lambda at: at[2] - at[0]
    )
    return (before_ns + after_ns) // 2 - realtime_ns


class Reading(NamedTuple):
    """Both clocks at one instant, without any of hopscope's ways; they are no further apart than the bound."""

    monotonic_ns: int
    device_ns: int
    bound_ns: int


def by_clock_gettime(index: int) -> Reading:
    with opened(index) as clock:
        found = [(time.monotonic_ns(), time.clock_gettime_ns(clock), time.monotonic_ns()) for _ in range(50)]
    before_ns, device_ns, after_ns = min(found, key=lambda at: at[2] - at[0])
    return Reading((before_ns + after_ns) // 2, device_ns, (after_ns - before_ns) // 2 + 1)


@dataclass
class Sent:
    """Messages, the socket's stamps of them, and readings of the clocks around them."""

    stamps: list[tuple[int, int]]
    first: Reading
    last: Reading

    def monotonic_ns(self, device_ns: int) -> float:
        pace = (self.last.monotonic_ns - self.first.monotonic_ns) / (self.last.device_ns - self.first.device_ns)
        return self.first.monotonic_ns + (device_ns - self.first.device_ns) * pace


def send_all(link: Link) -> Sent:
    first = by_clock_gettime(link.clock)
    return Sent([link.send() for _ in range(MESSAGES)], first, by_clock_gettime(link.clock))


@pytest.mark.parametrize("method", phc.METHODS)
def test_each_way_to_read_a_clock_agrees_with_clock_gettime(link: Link, method: phc.Method) -> None:
    with contextlib.ExitStack() as stack:
        fd = os.open(f"/dev/ptp{link.clock}", os.O_RDONLY)
        stack.callback(os.close, fd)
        try:
            method.windows(fd)
        except OSError as error:
            pytest.skip(f"not here: {error.strerror}")
        own = by_clock_gettime(link.clock)
        reading = phc.read(lambda: method.windows(fd), of_realtime=method.of_realtime)
    drift_ns = abs(reading.monotonic_ns - own.monotonic_ns) * 1e-4
    differs_ns = (reading.monotonic_ns - reading.device_ns) - (own.monotonic_ns - own.device_ns)
    assert abs(differs_ns) <= own.bound_ns + reading.bound_ns + drift_ns
    assert reading.bound_ns < SECOND // 1000


def assert_right(snapshot: Snapshot, sent: Sent) -> None:
    """The sum of the hops lies where the socket's own stamps say.

    The software stamp is taken after the driver has handed over and before the core begins.
    """
    nic, core = histogram(snapshot, "rx.nic"), histogram(snapshot, "rx.core")
    assert (nic.count, core.count) == (MESSAGES, MESSAGES)
    (row,) = [row for row in snapshot.hops if row.hop == "rx.nic"]
    assert row.error_ns is not None
    to_monotonic_ns = monotonic_of_realtime_ns()
    between_ns = sum(arrived + to_monotonic_ns - sent.monotonic_ns(stamped) for stamped, arrived in sent.stamps)
    # Besides the bounds of both: the wall clock's offset, and the hooks' way to the clock.
    allowed_ns = MESSAGES * (row.error_ns + max(sent.first.bound_ns, sent.last.bound_ns) + 5_000)
    assert nic.sum_ns - allowed_ns <= between_ns <= nic.sum_ns + core.sum_ns + allowed_ns
    assert nic.sum_ns > 0


def only_ours(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Return what was discarded at the hop, without the frames that the guest's own IPv6 multicasts."""
    return {
        key: count for key, count in all_discarded(snapshot).items() if key[0] == "rx.nic" and key[1] != "no_nic_stamp"
    }


@pytest.mark.parametrize("offset_s", [0, 86_400 * 365, -86_400 * 365])
def test_the_hop_is_what_the_sockets_stamps_say_whatever_the_clock_shows(link: Link, offset_s: int) -> None:
    step(link.clock, offset_s)
    try:
        with run(link) as rx:
            sent = send_all(link)
            snapshot = rx.interval()
            assert_right(snapshot, sent)
            assert only_ours(snapshot) == {}
            assert_right(rx.total(), sent)
    finally:
        step(link.clock, -offset_s)


@pytest.mark.parametrize("by", [(3600, 0), (-3600, 0), (0, 20_000_000), (-1, 980_000_000)])
def test_a_step_of_the_clock_during_a_run_is_told_and_costs_its_interval_alone(link: Link, by: tuple[int, int]) -> None:
    with run(link) as rx:
        sent = send_all(link)
        assert_right(rx.interval(), sent)
        step(link.clock, *by)
        for _ in range(MESSAGES):
            link.send()
        stepped = rx.interval()
        assert histogram(stepped, "rx.nic").count == 0
        discarded = {key: count for key, count in all_discarded(stepped).items() if key[0] == "rx.nic"}
        assert discarded.get(("rx.nic", "clock_set"), 0) + discarded.get(("rx.nic", "backwards"), 0) == MESSAGES
        rx.interval()  # its beginning was converted by the line of before
        sent = send_all(link)
        assert_right(rx.interval(), sent)
        total = histogram(rx.total(), "rx.nic")
    assert total.count == 2 * MESSAGES
    assert total.max_ns < 10 * SECOND


def test_an_injected_drift_is_found_again_and_followed(link: Link) -> None:
    adjust(link.clock, Timex(modes=_ADJ_FREQUENCY, frequency=800 << 16))  # ppm
    try:
        with run(link) as rx:
            time.sleep(1)
            (note,) = rx.interval().notes
            time.sleep(1)  # a line that did not know the drift would be off by 0.8 ms
            sent = send_all(link)
            assert_right(rx.interval(), sent)
    finally:
        adjust(link.clock, Timex(modes=_ADJ_FREQUENCY, frequency=0))
    (gain_ppm,) = re.findall(r"gains (\S+) ppm", note)
    assert 750 < float(gain_ppm) < 850


def test_a_frame_without_a_stamp_is_counted(link: Link) -> None:
    with run(link) as rx:
        for _ in range(MESSAGES):
            assert link.send(_OTHER)[0] == 0
        snapshot = rx.interval()
    assert histogram(snapshot, "rx.nic").count == 0
    assert all_discarded(snapshot)["rx.nic", "no_nic_stamp"] >= MESSAGES


def test_filters_that_only_a_socket_can_answer_leave_frames_without_one_out(link: Link) -> None:
    with run(link, ports=[9]) as rx:
        link.send()
        snapshot = rx.interval()
    assert histogram(snapshot, "rx.nic").count == 0
    assert only_ours(snapshot) == {}


def test_a_nic_in_another_namespace_is_found(link: Link) -> None:
    with Namespace() as there, contextlib.ExitStack() as stack:
        subprocess.run(["ip", "link", "set", link.sender, "netns", str(there.pid)], check=True)
        stack.callback(there.run, ["ip", "link", "set", link.sender, "netns", "1"], check=True)
        there.call(set_stamp_config, link.sender, StampConfig(0, 0, PTP_V2_EVENT))
        with RxCollector(RxOptions(namespaces=[there.inode])) as rx:
            rows = [row for row in rx.plan() if row.point == "rx.nic"]
        there.call(set_stamp_config, link.sender, StampConfig(0, 0, NONE))
    assert [row.status for row in rows] == ["attached"]
    assert rows[0].way.startswith(f"{link.sender}@")


@pytest.fixture
def other(link: Link) -> str:
    """A NIC that takes the order to stamp everything; QEMU gives it a clock that races, so that it cannot be used."""
    assert link
    return interface(devices(E1000E)[0])


@pytest.mark.parametrize("before", [NONE, PTP_V2_EVENT])
def test_stamping_is_switched_on_when_asked_and_put_back(link: Link, other: str, before: int) -> None:
    was = set_stamp_config(other, StampConfig(0, 1, before))
    with RxCollector(RxOptions()):
        assert stamp_config(other) == was
    with RxCollector(RxOptions(nic_stamps=True)) as rx:
        assert stamp_config(other) == was._replace(rx_filter=ALL)
        rows = {row.way.split()[0]: row for row in rx.plan() if row.point == "rx.nic"}
    assert stamp_config(other) == was
    # One cannot stamp all, and does not stamp; one cannot, and stamps some.
    assert rows[link.sender].reason == "it cannot time-stamp all received packets: Numerical result out of range"
    assert rows[link.receiver].status == "attached"
    assert rows[other].reason == "its clock runs too fast or too slow, or is being set"


def test_stamping_is_put_back_after_an_error(link: Link, other: str) -> None:
    was = set_stamp_config(other, StampConfig(0, 0, NONE))
    inode = Path("/proc/self/ns/net").stat().st_ino
    only = RxOptions(nic_stamps=True, interfaces=[(socket.if_nametoindex(other), inode)])
    with pytest.raises(KernelError, match=rf"rx\.nic is not available: {other} "), RxCollector(only):
        pass
    assert stamp_config(other) == was
    with contextlib.suppress(ZeroDivisionError), RxCollector(RxOptions(nic_stamps=True)):
        assert stamp_config(other).rx_filter == ALL
        raise ZeroDivisionError
    assert stamp_config(other) == was
    assert stamp_config(link.receiver).rx_filter == PTP_V2_EVENT


def test_stamping_is_put_back_when_the_command_is_ended(link: Link, other: str) -> None:
    was = set_stamp_config(other, StampConfig(0, 0, NONE))
    assert link
    command = [Path(sys.executable).with_name("hopscope"), "rx", "--nic-stamps", "--json", "-i", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b"rx.nic" in child.stdout.readline()
        assert stamp_config(other).rx_filter == ALL
        child.terminate()
        child.stdout.read()
    assert child.returncode == 0
    assert stamp_config(other) == was


def test_what_another_program_made_of_it_meanwhile_is_left(link: Link, other: str) -> None:
    set_stamp_config(other, StampConfig(0, 0, NONE))
    assert link
    with RxCollector(RxOptions(nic_stamps=True)):
        made = set_stamp_config(other, StampConfig(0, 1, PTP_V2_EVENT))
    assert stamp_config(other) == made
    set_stamp_config(other, StampConfig(0, 0, NONE))
