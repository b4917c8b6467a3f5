# SPDX-License-Identifier: Apache-2.0
"""Two hosts with one clock: whatever is said of it, the truth is 0, or what was added."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.clock_hosts import Hosts
from hopscope.clock.network import join
from hopscope.clock.offline import smooth
from hopscope.clock.online import Follower
from hopscope.clock.pairs import Pairs
from hopscope.clock.samples import Direction, Samples
from hopscope.lab import Tbf, Workload, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.clock.pair import Pair

pytestmark = pytest.mark.root

WINDOWS = 8
# A pair may not exchange more: sooner, and probes are held back.
APART_S = 0.5


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as made:
        yield made


@pytest.fixture
def pair(hosts: Hosts) -> Iterator[Pair]:
    with Pairs(hosts.members) as pairs:
        yield pairs.pairs[0]


def probed(pair: Pair, count: int = WINDOWS) -> list[Samples]:
    """Return windows with packets; where somebody sets this machine's wall clock, more are tried."""
    found: list[Samples] = []
    for _ in range(5 * count):
        samples = pair.window()
        if len(samples.there):
            found.append(samples)
        if len(found) == count:
            return found
        time.sleep(APART_S)
    pytest.fail(f"only {len(found)} windows had stamps: {dict(pair.refused)}, {pair.lost}, {pair.windows_set}")


def assert_holds(windows: list[Samples], ahead: Callable[[np.ndarray], np.ndarray]) -> None:
    """Check each window online, with the time until the next one, and all times offline."""
    follower = Follower(windows[0].first, windows[0].second)
    for samples in windows:
        follower.add(samples)
        curve = follower.curve()
        at_ns = curve.at_ns[-1] + np.arange(0, 500_000_000, 50_000_000)
        converted = curve.convert(at_ns)
        assert (np.abs(converted.times_ns - ahead(at_ns)) <= converted.bound_ns).all()
    assert (follower.breaks, follower.contradictory) == (0, 0)
    curve = smooth(Samples.joined(windows))
    at_ns = np.linspace(curve.at_ns[0], curve.at_ns[-1], 500).astype(np.int64)
    converted = curve.convert(at_ns)
    assert (np.abs(converted.times_ns - ahead(at_ns)) <= converted.bound_ns).all()


def moved(samples: Samples, ahead: Callable[[np.ndarray], np.ndarray]) -> Samples:
    """Return what would have been stamped if the second clock were another."""
    there = Direction(samples.there.sent_ns, ahead(samples.there.received_ns))
    back = Direction(ahead(samples.back.sent_ns), samples.back.received_ns)
    return Samples(samples.first, samples.second, there, back, samples.bound_ns + 1)


@pytest.mark.slow
def test_the_bound_holds_in_every_window_and_with_an_added_offset_and_drift(pair: Pair) -> None:
    windows = probed(pair)
    assert_holds(windows, lambda times_ns: times_ns)
    start_ns = windows[0].upper()[0][0]

    def ahead(times_ns: np.ndarray) -> np.ndarray:
        return times_ns + 123 + np.rint((times_ns - start_ns) * 20e-6).astype(np.int64)

    every = [moved(samples, ahead) for samples in windows]
    assert_holds(every, ahead)
    curve = smooth(Samples.joined(every))
    assert (curve.rate_low <= 20e-6).all()
    assert (curve.rate_high >= 20e-6).all()


@pytest.mark.slow
def test_the_bound_holds_under_traffic(hosts: Hosts, pair: Pair) -> None:
    address = hosts.address(1)
    with (
        Workload(hosts.namespaces[1], "tcp-sink", "--bind", address) as sink,
        Workload(hosts.namespaces[0], "tcp-send", address, sink.port),
    ):
        assert_holds(probed(pair), lambda times_ns: times_ns)


def test_a_queue_of_one_direction_is_in_the_bound(hosts: Hosts, pair: Pair) -> None:
    shape(hosts.namespaces[0], hosts.ifname(0, 1), Tbf(rate_bit_s=1_000_000, burst_bytes=2_000))
    address = hosts.address(1)
    with (
        Workload(hosts.namespaces[1], "udp-sink", "--bind", address) as sink,
        Workload(hosts.namespaces[0], "udp-send", address, sink.port, "--rate", 50, "--size", 1000),
    ):
        assert_holds(probed(pair, 4), lambda times_ns: times_ns)


@pytest.mark.slow
def test_three_hosts_agree() -> None:
    with Hosts(3) as hosts, Pairs(hosts.members) as pairs:
        curves = [smooth(Samples.joined(probed(pair, 3))) for pair in pairs.pairs]
    at_ns = np.array([max(curve.at_ns[0] for curve in curves)])
    network = join(curves, curves[0].source, at_ns)
    assert not network.contradictory.any()
    for curve in network.curves.values():
        converted = curve.convert(at_ns)
        assert (np.abs(converted.times_ns - at_ns) <= converted.bound_ns).all()


def test_an_agent_that_dies_is_said_and_the_others_go_on() -> None:
    with Hosts(3) as hosts, Pairs(hosts.members) as pairs:
        pairs.start()
        for child in hosts.namespaces[1]._children:
            child.kill()
        deadline_s = time.monotonic() + 60
        while len(pairs.failed) < 2 and time.monotonic() < deadline_s:
            pairs.take(0.1)
        assert sorted(pairs.failed) == [0, 2]
        assert ["host1" in sentence for sentence in pairs.failed.values()] == [True, True], pairs.failed
        while pairs.take(0):
            pass
        window = pairs.take(60)
        assert window
        assert window.pair == 1
