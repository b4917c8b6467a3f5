# SPDX-License-Identifier: Apache-2.0
"""Stamps of NICs whose clocks are known; in a guest of vmtest, those that a real driver takes.

QEMU's NICs stamp any packet that they send, but of those that they receive PTP's alone: the test lets the driver say
otherwise, and a pair of hosts with such NICs keeps to its kernels' stamps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.clock import exchange, nic_stamps
from hopscope.clock.exchange import Endpoint, Stamped
from hopscope.clock.nic_stamps import NicStamps, NicTrack
from hopscope.clock.pair import Pair
from hopscope.clock.peer import serve
from hopscope.clock.probe import Session
from hopscope.clock.realtime import RealtimeClock
from hopscope.clock.relation import ClockReading
from hopscope.clock.remote import Remote
from hopscope.errors import KernelError, UsageError
from hopscope.kernel.nic import timestamp_info
from hopscope.lab import Namespace
from hopscope.timestamping import (
    Collected,
    HardwareConfig,
    HwFilter,
    HwTx,
    Message,
    Received,
    Sof,
    Stage,
    StampedSocket,
    hardware_stamping,
)
from tests.clock.lines import opener
from tests.stamping import stamping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECOND = 1_000_000_000
WINDOW_NS = SECOND // 2
LO = 1
ON = HardwareConfig(HwTx.ON, HwFilter.ALL)
OFF = HardwareConfig(HwTx.OFF, HwFilter.NONE)


class Oscillator:
    """A NIC's clock that is `offset_ns` ahead and gains `rate`, and `more` from a moment on."""

    def __init__(self, offset_ns: int, rate: float, more: float = 0.0, since_ns: int = 0) -> None:
        self._offset_ns, self._rate, self._more, self._since_ns = offset_ns, rate, more, since_ns

    def at(self, monotonic_ns: int) -> int:
        gained = monotonic_ns * self._rate + max(monotonic_ns - self._since_ns, 0) * self._more
        return self._offset_ns + monotonic_ns + round(gained)

    def read(self, monotonic_ns: int, off_ns: int = 0, bound_ns: int = 0) -> ClockReading:
        return ClockReading(self.at(monotonic_ns + off_ns), monotonic_ns, bound_ns)


@given(
    st.integers(-(1 << 60), 1 << 60),
    st.floats(-400e-6, 400e-6),
    st.lists(st.integers(-300, 300), min_size=4, max_size=8),
    st.floats(0, 1),
)
def test_stamps_are_converted_within_the_bound_whatever_the_clock_shows(
    offset_ns: int, rate: float, off_ns: list[int], where: float
) -> None:
    clock = Oscillator(offset_ns, rate)
    track = NicTrack(clock.read(0, off_ns[0], 300))
    for number, off in enumerate(off_ns[1:], 1):
        between = track.advance(clock.read(number * WINDOW_NS, off, 300))
        if number == 1:
            assert between is None  # nothing tells yet whether the clock runs evenly
            continue
        assert between
        truth_ns = round((number - 1 + where) * WINDOW_NS)
        for _, monotonic_ns in between.convert([Stamped(7, clock.at(truth_ns))]):
            assert abs(monotonic_ns - truth_ns) <= between.bound_ns
        assert between.bound_ns < 3_000


@pytest.mark.parametrize("more", [50e-6, -50e-6, 400e-9])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_the_bound_holds_when_a_daemon_changes_the_clocks_frequency_in_between(more: float, part: float) -> None:
    clock = Oscillator(SECOND, 1e-6, more, round((1 + part) * WINDOW_NS))
    track = NicTrack(clock.read(0))
    track.advance(clock.read(WINDOW_NS))
    between = track.advance(clock.read(2 * WINDOW_NS))
    assert between
    for at_ns in range(WINDOW_NS, 2 * WINDOW_NS + 1, WINDOW_NS // 40):
        ((_, found_ns),) = between.convert([Stamped(0, clock.at(at_ns))])
        assert abs(found_ns - at_ns) <= between.bound_ns


def test_stamps_from_outside_are_left_out_and_all_when_the_clock_was_set() -> None:
    clock, later = Oscillator(0, 0.0), Oscillator(5 * SECOND, 0.0)
    track = NicTrack(clock.read(0))
    assert track.advance(clock.read(WINDOW_NS)) is None
    between = track.advance(clock.read(2 * WINDOW_NS))
    assert between
    stamps = [Stamped(number, clock.at(number * WINDOW_NS // 2)) for number in range(7)]
    assert [number for number, _ in between.convert(stamps)] == [2, 3, 4]
    assert track.advance(later.read(3 * WINDOW_NS)) is None
    again = track.advance(later.read(4 * WINDOW_NS))
    assert again
    assert again.convert([Stamped(1, later.at(7 * WINDOW_NS // 2))]) == [(1, 7 * WINDOW_NS // 2)]


class Clock:
    """Stands for `HardwareClock`."""

    gone = False

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> ClockReading:
        if Clock.gone:
            raise KernelError("gone")
        now_ns = time.monotonic_ns()
        return ClockReading(now_ns + 37 * SECOND, now_ns, 40)


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand for the driver of lo; return what is done to it."""
    done: list[str] = []

    @contextlib.contextmanager
    def stamping(name: str) -> Iterator[HardwareConfig]:
        done.append(f"{name} on")
        yield ON
        done.append(f"{name} as before")

    monkeypatch.setattr(nic_stamps, "HardwareClock", Clock)
    monkeypatch.setattr(nic_stamps, "hardware_stamping", stamping)
    monkeypatch.setattr(nic_stamps, "hardware_config", lambda _: OFF)
    monkeypatch.setattr(Clock, "gone", False)
    return done


def test_a_nic_is_switched_on_when_asked_alone_and_put_back(switched: list[str]) -> None:
    unasked = NicStamps(lambda _: 0, switch_on=False)
    assert unasked.look(LO) is None
    assert unasked.ifindex is None
    nic = NicStamps(lambda _: 0, switch_on=True)
    assert nic.look(None) is None
    assert switched == []
    assert nic.look(LO) is None
    assert (nic.ifindex, switched) == (LO, ["lo on"])
    assert nic.look(LO) is None
    between = nic.look(LO)
    assert between
    assert between.bound_ns >= 40
    nic.close()
    nic.close()
    assert (nic.ifindex, switched) == (None, ["lo on", "lo as before"])


def test_a_nic_that_stamps_already_is_used_as_it_is(switched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nic_stamps, "hardware_config", lambda _: ON)
    nic = NicStamps(lambda _: 0, switch_on=True)
    nic.look(LO)
    assert (nic.ifindex, switched) == (LO, [])
    monkeypatch.setattr(Clock, "gone", True)
    assert nic.look(LO) is None
    assert nic.ifindex is None


def test_a_nic_that_cannot_leaves_the_kernels_stamps(switched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> contextlib.AbstractContextManager[HardwareConfig]:
        raise UsageError("lo cannot stamp these packets")

    no_clock = NicStamps(lambda _: None, switch_on=True)
    no_clock.look(LO)
    some = NicStamps(lambda _: 0, switch_on=False)
    monkeypatch.setattr(nic_stamps, "hardware_config", lambda _: HardwareConfig(HwTx.ON, HwFilter.PTP_V2_EVENT))
    some.look(LO)
    monkeypatch.setattr(nic_stamps, "hardware_stamping", refuse)
    cannot = NicStamps(lambda _: 0, switch_on=True)
    cannot.look(LO)
    assert [nic.ifindex for nic in (no_clock, some, cannot)] == [None] * 3
    assert switched == []


PLAYED = Oscillator(-40 * 365 * 86_400 * SECOND, 80e-6)


class PlayedClock(Clock):
    def read(self) -> ClockReading:
        return PLAYED.read(time.monotonic_ns(), bound_ns=40)


class StampedByNic(StampedSocket):
    """Over lo, where the NIC stamps when the kernel does, by its own clock."""

    to_monotonic_ns = 0

    def sendto(self, data: Any, address: Any, flags: int = 0, *, record: Sof | None = None) -> Message:  # noqa: ANN401
        assert record is None or Sof.TX_HARDWARE in record
        return super().sendto(data, address, flags)

    def collect(self, timeout_s: float | None = 0.0) -> Collected:
        found = super().collect(timeout_s)
        for message in found.messages:
            message.time_ns[Stage.SND_HARDWARE] = PLAYED.at(message.time_ns[Stage.SND] + self.to_monotonic_ns)
        return found

    def receive(self, size_bytes: int, flags: int = 0) -> Received:
        got = super().receive(size_bytes, flags)
        assert got.software_ns
        nic_ns = PLAYED.at(got.software_ns + self.to_monotonic_ns)
        return dataclasses.replace(got, hardware_ns=nic_ns, ifindex=LO)


def test_two_peers_with_such_nics_are_compared_by_their_stamps(
    switched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nic_stamps, "HardwareClock", PlayedClock)
    monkeypatch.setattr(exchange, "StampedSocket", StampedByNic)
    with RealtimeClock() as clock:
        monkeypatch.setattr(StampedByNic, "to_monotonic_ns", clock.to_monotonic.offset_ns)
        off_ns = clock.to_monotonic.bound_ns
    with stamping(), contextlib.ExitStack() as stack:
        opened = opener(stack, lambda line: serve(line, lambda _: 0))
        pair = Pair(*(Remote(opened(), "127.0.0.1", name) for name in ("one", "two")), nic_stamps=True)
        before_ns = time.monotonic_ns()
        windows = []
        for _ in range(100):
            windows.append(pair.window(4, 2))
            if windows[-1].by_nics:
                break
            time.sleep(0.1)
        after_ns = time.monotonic_ns()
    assert not windows[0].by_nics
    assert switched == ["lo on", "lo on", "lo as before", "lo as before"]
    samples = windows[-1]
    assert samples.by_nics
    off_ns += samples.bound_ns
    for way in (samples.there, samples.back):
        assert (way.sent_ns - off_ns <= way.received_ns).all()
        assert before_ns - off_ns <= way.sent_ns.min()
        assert way.received_ns.max() <= after_ns + off_ns


@pytest.fixture
def nics() -> list[str]:
    """Return two NICs of QEMU's igb."""
    devices = sorted(Path("/sys/bus/pci/devices").iterdir()) if "HOPSCOPE_VM" in os.environ else []
    found = [path for path in devices if (path / "device").read_text().strip() == "0x10c9"]
    if len(found) < 2:
        pytest.skip("needs two NICs of QEMU's igb; vmtest gives them to one kernel")
    return [next((path / "net").iterdir()).name for path in found]


@contextlib.contextmanager
def answering(endpoint: Endpoint) -> Iterator[None]:
    over = threading.Event()

    def pump() -> None:
        while not over.wait(0.001):
            endpoint.pump()

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def up(name: str, address: str, run: Callable[..., Any] = subprocess.run) -> None:
    run(["ip", "address", "add", f"{address}/24", "dev", name], check=True)
    run(["ip", "link", "set", name, "up"], check=True)


def bound(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(100):  # until the link is there
        with contextlib.suppress(OSError):
            sock.bind((address, 0))
            return sock
        time.sleep(0.1)
    pytest.fail(f"{address} is not there")


@pytest.mark.root
def test_what_a_real_nic_stamps_is_between_its_driver_and_the_other_side(
    nics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = nics
    monkeypatch.setattr(nic_stamps, "hardware_config", lambda _: ON)
    session = Session(b"8 bytes!", b"thirty-two bytes of a secret key")
    with (
        Namespace() as other,
        contextlib.ExitStack() as stack,
        hardware_stamping(here, rx=HwFilter.PTP_V2_EVENT),
    ):
        subprocess.run(["ip", "link", "set", there, "netns", str(other.pid)], check=True)
        stack.callback(other.run, ["ip", "link", "set", there, "netns", "1"], check=True)
        up(here, "10.78.0.1")
        stack.callback(subprocess.run, ["ip", "address", "flush", "dev", here], check=True)
        up(there, "10.78.0.2", other.run)
        ours, theirs = bound("10.78.0.1"), other.call(bound, "10.78.0.2")
        addresses = ours.getsockname(), theirs.getsockname()
        nic = NicStamps(lambda name: timestamp_info(name).phc_index, switch_on=False)
        end = stack.enter_context(Endpoint(ours, addresses[1], session, 0, nic))
        far = stack.enter_context(Endpoint(theirs, addresses[0], session, 1))
        checked = 0
        deadline_s = time.monotonic() + 60
        while checked < 10 and time.monotonic() < deadline_s:
            with answering(far):
                end.burst()
            time.sleep(0.3)
            harvest, arrived = end.harvest(), dict(far.harvest().received)
            left = dict(harvest.sent)
            off_ns = harvest.nic_bound_ns + harvest.bound_ns + 10
            for number, nic_ns in harvest.nic_sent:
                if number in arrived:
                    assert left[number] - off_ns <= nic_ns <= arrived[number] + off_ns
                    checked += 1
            assert harvest.nic_received == []
    assert checked >= 10
