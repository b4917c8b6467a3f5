# SPDX-License-Identifier: Apache-2.0
"""The hop from the NIC where no NIC stamps: a clock in its place that does as it is told.

Real stamps and clocks are in test_rx_nic_stamps.py.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

import pytest

from hopscope.bpf.layout import HopRxHop
from hopscope.clock.phc import METHODS
from hopscope.clock.relation import ClockReading
from hopscope.errors import KernelError, UsageError
from hopscope.kernel import netns
from hopscope.kernel.nic import TimestampInfo
from hopscope.timestamping.device import StampConfig
from hopscope.verbs.rx import collector
from hopscope.verbs.rx import nic as rx_nic
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.nic import Nic, NicStamps, find_nics
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import all_discarded, counts, histogram, ping, run, udp_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab, Namespace
    from tests.lab.measure import NetworkPath

SECOND = 1_000_000_000
NONE, ALL, PTP = 0, 1, 12
OFFSET_NS = 1_795_263_408 * SECOND


class Clock:
    """A hardware clock that shows CLOCK_MONOTONIC and an offset; it may be set, and go away."""

    method = METHODS[1]
    offset_ns = OFFSET_NS
    gone = False
    closed = 0

    def __init__(self, _index: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        type(self).closed += 1

    def read(self) -> ClockReading:
        if self.gone:
            raise KernelError("/dev/ptp0 cannot be read: No such device")
        now_ns = time.monotonic_ns()
        return ClockReading(now_ns + self.offset_ns, now_ns, 400)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    class Own(Clock):
        """Whose state is this test's."""

    monkeypatch.setattr(rx_nic, "HardwareClock", Own)
    return Own


def nic_of(namespace: Namespace, name: str, rx_filter: int = ALL) -> Nic:
    path = Path(f"/proc/{namespace.pid}/ns/net")
    there = netns.Namespace(namespace.inode, "there", path)
    return Nic(name, namespace.call(socket.if_nametoindex, name), there, 0, StampConfig(0, 0, rx_filter))


@pytest.fixture
def stamping(lab: Lab, clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    """The receiving end of the veth passes for a NIC that stamps; its frames have no stamp."""
    monkeypatch.setattr(collector, "find_nics", lambda _: [nic_of(lab.server, "server0")])
    return clock


def record(rx: RxCollector, samples: int, each_ns: int) -> None:
    """Do as the kernel side does with frames that have a stamp."""
    rows = rx._series._rows[0, HopRxHop.HOP_RX_NIC, 0:1]
    rows["slots"][0, 100] += samples
    rows["sum_ns"][0] += samples * each_ns
    rows["max_ns"][0] = max(rows["max_ns"][0], each_ns)


@pytest.mark.root
def test_each_frame_without_a_stamp_is_counted(stamping: type[Clock], lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), run(lab, hops=["rx.nic", "rx.core"]) as rx:
        assert ping(sender, receiver, 23) == 23
        snapshot = rx.interval()
    assert not stamping.gone
    # The other way goes through an interface that is no NIC.
    without = all_discarded(snapshot)["rx.nic", "no_nic_stamp"]
    assert without >= 23
    assert without <= counts(snapshot)["rx.core"]
    assert counts(snapshot)["rx.nic"] == 0


@pytest.mark.root
def test_frames_that_the_filters_leave_out_are_not_counted(stamping: type[Clock], lab: Lab, veth: NetworkPath) -> None:
    assert stamping
    inode, ifindex = lab.client.inode, lab.client.call(socket.if_nametoindex, "client0")
    with udp_pair(veth) as (sender, receiver), RxCollector(RxOptions(interfaces=[(ifindex, inode)])) as rx:
        assert ping(sender, receiver, 23) == 23
        snapshot = rx.interval()
    assert ("rx.nic", "no_nic_stamp") not in all_discarded(snapshot)


@pytest.mark.root
def test_the_bound_is_shown(stamping: type[Clock], lab: Lab) -> None:
    assert stamping
    with run(lab) as rx:
        record(rx, 5, 70_000)
        snapshot = rx.interval()
        (row,) = [row for row in snapshot.hops if row.hop == "rx.nic"]
        assert (row.from_point, row.to_point, row.unit) == ("rx.nic", "rx.driver", "frame")
        assert (row.histogram.count, row.histogram.sum_ns, row.histogram.max_ns) == (5, 350_000, 70_000)
        assert row.error_ns is not None
        assert 400 <= row.error_ns <= 500
        assert snapshot.notes[0].startswith(f"rx.nic may be off by {row.error_ns} ns; the clock of server0@there is ")
        assert [row.error_ns for row in snapshot.hops if row.hop != "rx.nic"] == [None] * (len(snapshot.hops) - 1)
        (planned,) = [row for row in snapshot.plan if row.point == "rx.nic"]
        assert (planned.way, planned.status) == ("server0@there /dev/ptp0", "attached")
    assert stamping.closed == 1


@pytest.mark.root
@pytest.mark.parametrize("step_ns", [-10_000_000, 3600 * SECOND])
def test_samples_around_a_step_of_the_clock_are_discarded(stamping: type[Clock], lab: Lab, step_ns: int) -> None:
    with run(lab) as rx:
        record(rx, 5, 70_000)
        assert histogram(rx.interval(), "rx.nic").count == 5
        record(rx, 7, 9_000_000)
        stamping.offset_ns = OFFSET_NS + step_ns
        stepped = rx.interval()
        # Some may have been converted before the kernel side was told of the clock's new time.
        record(rx, 1, 9_000_000)
        after = rx.interval()
        record(rx, 3, 50_000)
        again = rx.interval()
        total = rx.total()
    for snapshot, lost in ((stepped, 7), (after, 1), (total, 8)):
        assert all_discarded(snapshot)["rx.nic", "clock_set"] == lost
    for snapshot in (stepped, after):
        assert (histogram(snapshot, "rx.nic").count, histogram(snapshot, "rx.nic").sum_ns) == (0, 0)
        assert histogram(snapshot, "rx.nic").max_ns == 0
        assert "rx.nic has no bound" in snapshot.notes[0]
    assert ("rx.nic", "clock_set") not in all_discarded(again)
    assert histogram(again, "rx.nic").sum_ns == 150_000
    whole = histogram(total, "rx.nic")
    assert (whole.count, whole.sum_ns, whole.max_ns) == (8, 500_000, 70_000)


@pytest.mark.root
def test_a_clock_that_goes_away_ends_the_hop_and_not_the_run(stamping: type[Clock], lab: Lab) -> None:
    with run(lab) as rx:
        record(rx, 5, 70_000)
        rx.interval()
        record(rx, 7, 70_000)
        stamping.gone = True
        last = rx.interval()
        assert [row.reason for row in last.plan if row.point == "rx.nic"] == [
            "/dev/ptp0 cannot be read: No such device"
        ]
        assert len(rx._session.bpf.maps["nic_clocks"].items()[0]) == 0
        assert "rx.core" in counts(rx.interval())


@pytest.mark.root
def test_the_kernel_side_is_told_the_line_anew(stamping: type[Clock], lab: Lab) -> None:
    assert stamping
    with run(lab) as rx:
        told = []
        for _ in range(2):
            rx.interval()
            _, values = rx._session.bpf.maps["nic_clocks"].items()
            told.append(values[0])
    assert [int(value["nic_ns"] - value["monotonic_ns"]) for value in told] == [OFFSET_NS] * 2
    assert told[1]["monotonic_ns"] > told[0]["monotonic_ns"]
    assert told[1]["drift"] == 0
    assert told[1]["bound_ns"] == 400


@pytest.mark.root
def test_where_no_nic_stamps_the_hop_costs_nothing_and_asking_for_it_fails(lab: Lab) -> None:
    if find_nics(lambda *_: True):
        pytest.skip("this machine has a hardware clock")
    with run(lab) as rx:
        assert "rx.nic" not in counts(rx.interval())
        (row,) = [row for row in rx.plan() if row.point == "rx.nic"]
        assert (row.status, row.reason) == ("unavailable", "no interface has a hardware clock")
        assert rx._session.bpf.maps["nic_clocks"].max_entries == 1
    for options in ({"hops": ["rx.nic"]}, {"nic_stamps": True}):
        with (
            pytest.raises(KernelError, match=r"^rx\.nic is not available: .*no interface has a hardware clock"),
            run(lab, **options),
        ):
            pass


def test_nic_stamps_for_hops_that_do_not_need_them_is_refused() -> None:
    for options in ({"hops": ["rx.core"]}, {"pids": [1]}):
        with pytest.raises(UsageError, match=r"--nic-stamps has no effect without the hop rx\.nic"):
            RxCollector(RxOptions(nic_stamps=True, **options))  # type: ignore[arg-type]


def host_nic(phc: int, rx_filter: int) -> Nic:
    here = netns.Namespace(Path("/proc/self/ns/net").stat().st_ino, "host", Path("/proc/self/ns/net"))
    return Nic("lo", 1, here, phc, StampConfig(0, 1, rx_filter))


def test_a_nic_that_does_not_stamp_is_refused_with_the_next_step(clock: type[Clock]) -> None:
    with NicStamps([host_nic(0, NONE), host_nic(1, PTP)], switch_on=False) as stamps:
        assert stamps.used == [host_nic(1, PTP)]
        refused, used = stamps.rows()
    assert (refused.way, refused.status, refused.reason) == (
        "lo /dev/ptp0",
        "unavailable",
        "it does not time-stamp received packets",
    )
    assert "--nic-stamps" in refused.next_step
    assert used.status == "attached"
    assert clock.closed == 1


@pytest.mark.root
def test_a_nic_that_shares_its_clock_with_one_that_is_refused_is_used(
    lab: Lab, clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert clock
    nics = [nic_of(lab.client, "client0", NONE), nic_of(lab.server, "server0")]
    monkeypatch.setattr(collector, "find_nics", lambda _: nics)
    with run(lab) as rx:
        rx.interval()
        keys, _ = rx._session.bpf.maps["nic_clocks"].items()
        assert [row.status for row in rx.plan() if row.point == "rx.nic"] == ["unavailable", "attached"]
    assert [(int(key["ifindex"]), int(key["netns"])) for key in keys] == [(nics[1].ifindex, lab.server.inode)]


@pytest.mark.root
def test_a_clock_that_races_is_refused_and_the_run_goes_on(
    lab: Lab, stamping: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_ns = time.monotonic_ns()
    monkeypatch.setattr(
        stamping, "read", lambda _: ClockReading((now_ns := time.monotonic_ns()) + 16 * (now_ns - first_ns), now_ns, 0)
    )
    with run(lab) as rx:
        (row,) = [row for row in rx.plan() if row.point == "rx.nic"]
        assert row.reason == "its clock runs too fast or too slow, or is being set"
        assert len(rx._session.bpf.maps["nic_clocks"].items()[0]) == 0
        assert "rx.nic" not in counts(rx.interval())


class Driver:
    """Takes and gives configurations in an interface's place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: StampConfig, *, makes: int = ALL) -> None:
        self.now = now
        self.makes = makes
        self.calls = 0
        monkeypatch.setattr(rx_nic, "set_stamp_config", self.take)
        monkeypatch.setattr(rx_nic, "stamp_config", lambda _: self.now)

    def take(self, name: str, config: StampConfig) -> StampConfig:
        assert name == "lo"
        self.calls += 1
        self.now = config._replace(rx_filter=self.makes) if config.rx_filter == ALL else config
        return self.now


@pytest.mark.parametrize("before", [NONE, PTP])
def test_stamping_is_switched_on_and_put_back(clock: type[Clock], monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    was = StampConfig(0, 1, before)
    driver = Driver(monkeypatch, was)
    with NicStamps([host_nic(0, before)], switch_on=True) as stamps:
        assert driver.now == was._replace(rx_filter=ALL)
        assert [row.status for row in stamps.rows()] == ["attached"]
    assert driver.now == was
    assert clock.closed == 1


def test_stamping_that_is_on_already_is_left_alone(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, StampConfig(0, 1, ALL))
    with NicStamps([host_nic(0, ALL)], switch_on=True) as stamps:
        assert stamps.used
    assert driver.calls == 0
    assert clock.closed == 1


def test_a_driver_that_makes_less_of_it_is_put_back_and_refused(
    clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch, StampConfig(0, 1, NONE), makes=PTP)
    with NicStamps([host_nic(0, NONE)], switch_on=True) as stamps:
        assert [row.reason for row in stamps.rows()] == ["it cannot time-stamp all received packets"]
    assert driver.now == StampConfig(0, 1, NONE)
    assert clock.closed == 0


def test_stamping_is_put_back_when_a_later_nic_fails_hard(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, StampConfig(0, 1, NONE))
    monkeypatch.setattr(clock, "read", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        NicStamps([host_nic(0, NONE)], switch_on=True)
    assert driver.now == StampConfig(0, 1, NONE)
    assert clock.closed == 1


@pytest.mark.parametrize(("code", "told"), [(errno.ENODEV, False), (errno.EBUSY, True)])
def test_only_a_nic_that_is_gone_may_stay_as_it_is(
    clock: type[Clock], monkeypatch: pytest.MonkeyPatch, code: int, *, told: bool
) -> None:
    assert clock
    Driver(monkeypatch, StampConfig(0, 1, NONE))
    stamps = NicStamps([host_nic(0, NONE)], switch_on=True)

    def refuse(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(rx_nic, "set_stamp_config", refuse)
    if told:
        with (
            pytest.raises(KernelError, match=r"lo still time-stamps all received packets: .*hwstamp_ctl -i lo -r 0"),
            stamps,
        ):
            pass
    else:
        with stamps:
            pass


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four interfaces in each namespace; one has no clock, one does not tell, one went away."""
    infos = {
        name: TimestampInfo(name, [], phc, [], [], "igc") for name, phc in (("a", 0), ("b", None), ("c", 2), ("d", 3))
    }

    def info(name: str) -> TimestampInfo:
        if name == "c":
            raise UsageError("there is no interface c")
        return infos[name]

    def config(name: str) -> StampConfig:
        if name == "d":
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return StampConfig(0, 0, PTP)

    monkeypatch.setattr(rx_nic, "timestamp_info", info)
    monkeypatch.setattr(rx_nic, "stamp_config", config)
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(zip(itertools.count(1), "abcd", strict=False)))
    return


@pytest.mark.root
@pytest.mark.usefixtures("interfaces")
def test_nics_of_all_namespaces_are_found_but_for_the_filters(lab: Lab) -> None:
    options = RxOptions(namespaces=[lab.client.inode, lab.server.inode])
    found = find_nics(options.wants_interface)
    assert {(nic.name, nic.namespace.inode) for nic in found} == {("a", lab.client.inode), ("a", lab.server.inode)}
    assert [nic.config.rx_filter for nic in found] == [PTP, PTP]
    assert find_nics(RxOptions(interfaces=[(2, lab.server.inode)]).wants_interface) == []
