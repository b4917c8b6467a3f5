# SPDX-License-Identifier: Apache-2.0
"""Hardware clocks that answer as the kernel does; in a guest of vmtest, those of real drivers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest

from hopscope.clock import nic_clocks
from hopscope.clock.domain import Clock, ClockDomain
from hopscope.clock.nic_clocks import NicClocks
from hopscope.clock.of_host import phc
from hopscope.clock.peer import Peer
from hopscope.clock.phc import HardwareClock
from hopscope.clock.probe import Session
from hopscope.clock.relation import ClockReading
from hopscope.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000_000
START_NS = 1_790_000_000 * SECOND


class Clocks:
    """Stands for `HardwareClock`: number 3 cannot be opened, number 1 goes away."""

    gone = False

    def __init__(self, index: int) -> None:
        self.index = index
        if index == 3:
            raise KernelError("no")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> ClockReading:
        if self.index == 1 and Clocks.gone:
            raise KernelError("gone")
        return ClockReading(START_NS + self.index, 5, 40)


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    for name in ("ptp0", "ptp1", "ptp3", "nonsense"):
        (tmp_path / "ptp" / name).mkdir(parents=True)
    (tmp_path / "ptp" / "ptp0" / "clock_name").write_text("KVM virtual PTP\n")
    for interface in ("eth1", "eth0"):
        (tmp_path / "net" / interface / "device" / "ptp" / "ptp1").mkdir(parents=True)
    monkeypatch.setattr(nic_clocks, "HardwareClock", Clocks)
    monkeypatch.setattr(Clocks, "gone", False)
    return tmp_path / "ptp", tmp_path / "net"


def test_clocks_are_read_by_the_names_of_what_has_them(sysfs: tuple[Path, Path]) -> None:
    with NicClocks(*sysfs) as clocks:
        found = clocks.read()
        assert found == {
            "ptp0 (KVM virtual PTP)": ClockReading(START_NS, 5, 40),
            "ptp1 (eth0, eth1)": ClockReading(START_NS + 1, 5, 40),
        }
        Clocks.gone = True
        assert list(clocks.read()) == ["ptp0 (KVM virtual PTP)"]


def test_a_host_without_such_clocks_has_none(tmp_path: Path) -> None:
    with NicClocks(tmp_path / "none", tmp_path) as clocks:
        assert clocks.read() == {}


def read_at(monotonic_ns: int, drift: float, step_ns: int = 0, bound_ns: int = 30) -> ClockReading:
    return ClockReading(START_NS + monotonic_ns + round(monotonic_ns * drift) + step_ns, monotonic_ns, bound_ns)


def test_two_readings_tell_how_it_runs_and_the_bound_holds_between_them_and_after() -> None:
    curve = phc("a", "ptp0", read_at(10 * SECOND, 50e-6), read_at(10 * SECOND + SECOND // 2, 50e-6))
    assert curve.source == ClockDomain("a")
    assert curve.target == ClockDomain("a", Clock.PHC, "ptp0")
    assert str(curve.target) == "ptp0 of a"
    at_ns = 10 * SECOND + np.arange(0, SECOND, SECOND // 20)
    truth_ns = START_NS + at_ns + np.rint(at_ns * 50e-6).astype(np.int64)
    converted = curve.convert(at_ns)
    assert (np.abs(converted.times_ns - truth_ns) <= converted.bound_ns).all()
    assert converted.bound_ns[:10].max() < 100


def test_a_clock_that_was_set_in_between_is_known_on_either_side_alone() -> None:
    first, second = read_at(10 * SECOND, 0.0), read_at(11 * SECOND, 0.0, step_ns=5 * SECOND)
    curve = phc("a", "ptp0", first, second)
    assert curve.breaks[0]
    assert curve.rate[0] == 0
    at_ns = np.array([10 * SECOND + SECOND // 2])
    value, low, high = curve.offsets(at_ns)
    assert low[0] <= 0 <= high[0]
    assert low[0] <= 5 * SECOND <= high[0]
    assert value.size == 1


@pytest.fixture
def real() -> Iterator[Path]:
    devices = sorted(Path("/sys/class/ptp").glob("ptp*"))
    if not devices:
        pytest.skip("needs a hardware clock; vmtest gives one to one kernel")
    return devices[0]


@pytest.mark.root
def test_a_real_clock_is_where_its_curve_says(real: Path) -> None:
    number = int(real.name.removeprefix("ptp"))
    with HardwareClock(number) as clock:
        readings = []
        for _ in range(5):
            readings.append(clock.read())
            time.sleep(0.5)
    for first, second, third in zip(readings, readings[1:], readings[2:], strict=False):
        converted = phc("here", real.name, first, second).convert(np.array([third.monotonic_ns]))
        assert abs(converted.times_ns[0] - third.device_ns) <= converted.bound_ns[0] + third.bound_ns


@pytest.mark.root
def test_a_peer_tells_of_real_clocks(real: Path) -> None:
    session = Session.new()
    with Peer() as peer:
        peer.do({"do": "open", "address": "127.0.0.1"})
        peer.do(
            {"do": "meet", "peer": ["127.0.0.1", 9], "token": session.token.hex(), "key": session.key.hex(), "role": 0}
        )
        before_ns = time.monotonic_ns()
        phcs = peer.do({"do": "take"})["clock"]["phcs"]
        after_ns = time.monotonic_ns()
    (found,) = [entry for entry in phcs if entry[0].split()[0] == real.name]
    assert before_ns - found[3] <= found[2] <= after_ns + found[3]
