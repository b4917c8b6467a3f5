# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.clock.domain import ClockDomain
from hopscope.clock.network import join
from hopscope.clock.offline import smooth
from hopscope.clock.samples import Direction, Samples
from hopscope.errors import UsageError
from tests.clock.simulated import SECOND, START_NS, Network, ahead, windows

if TYPE_CHECKING:
    from hopscope.clock.curve import Curve

HOSTS = [ClockDomain(name) for name in "abcd"]
TIMES = START_NS + np.arange(2, 20) * SECOND // 2


def compared(one: int, other: int, clocks: list[tuple[int, float]], seed: int, network: Network | None = None) -> Curve:
    """Compare two hosts, whose clocks are ahead of the true time by an offset and a drift."""
    offset, drift = zip(clocks[one], clocks[other], strict=True)
    parts = []
    for samples in windows(ahead(offset[1] - offset[0], 0.0), 24, network or Network(), seed):
        # Each side's clock drifts by itself.
        there, back = samples.there, samples.back
        parts.append(
            Samples(
                *(HOSTS[one], HOSTS[other]),
                Direction(
                    drifted(there.sent_ns, drift[0], 0) + offset[0],
                    drifted(there.received_ns, drift[1], offset[1] - offset[0]) + offset[0],
                ),
                Direction(
                    drifted(back.sent_ns, drift[1], offset[1] - offset[0]) + offset[0],
                    drifted(back.received_ns, drift[0], 0) + offset[0],
                ),
                10,
            )
        )
    return smooth(Samples.joined(parts))


def drifted(times_ns: np.ndarray, drift: float, offset_ns: int) -> np.ndarray:
    since = times_ns - START_NS - offset_ns
    return times_ns + np.rint(since * drift).astype(np.int64)


def truth(host: int, times_ns: np.ndarray, clocks: list[tuple[int, float]]) -> np.ndarray:
    """Return what a host's clock shows when the first one's shows `times_ns`."""
    offset, drift = clocks[0]
    true = START_NS + np.rint((times_ns - offset - START_NS) / (1 + drift)).astype(np.int64)
    offset, drift = clocks[host]
    return true + offset + np.rint((true - START_NS) * drift).astype(np.int64)


CLOCKS = st.tuples(st.integers(-(10**15), 10**15), st.floats(-50e-6, 50e-6))


@settings(max_examples=5)
@given(st.lists(CLOCKS, min_size=4, max_size=4), st.integers(0, 10**6))
def test_four_hosts_come_onto_one_axis_within_their_bounds(clocks: list[tuple[int, float]], seed: int) -> None:
    pairs = [compared(one, other, clocks, seed + one * 4 + other) for one, other in itertools.combinations(range(4), 2)]
    at = TIMES + clocks[0][0]
    network = join(pairs, HOSTS[0], at)
    assert not network.contradictory.any()
    assert np.abs(network.residuals_ns).max() < 200
    for host in range(1, 4):
        converted = network.curves[HOSTS[host]].convert(at)
        error = np.abs(converted.times_ns - truth(host, at, clocks))
        assert (error <= converted.bound_ns + 1).all()
        assert error.max() <= 60


def test_a_pair_that_was_never_compared_is_known_through_the_others() -> None:
    clocks = [(0, 0.0), (10**9, 10e-6), (-5 * 10**9, -10e-6), (7, 0.0)]
    pairs = [compared(1, 0, clocks, 1), compared(1, 2, clocks, 2), compared(2, 3, clocks, 3)]
    network = join(pairs, HOSTS[0], TIMES)
    assert np.abs(network.residuals_ns).max() < 1e-3  # no loop: nothing to disagree with
    for host in (1, 2, 3):
        converted = network.curves[HOSTS[host]].convert(TIMES)
        assert (np.abs(converted.times_ns - truth(host, TIMES, clocks)) <= converted.bound_ns + 1).all()


def test_a_good_way_around_narrows_a_bad_pair() -> None:
    clocks = [(0, 0.0)] * 3
    far = Network(least_ns=(100, 60_000))
    pairs = [compared(0, 2, clocks, 1, far), compared(0, 1, clocks, 2), compared(1, 2, clocks, 3)]
    network = join(pairs, HOSTS[0], TIMES)
    direct = pairs[0].convert(TIMES)
    joint = network.curves[HOSTS[2]].convert(TIMES)
    assert np.abs(direct.times_ns - TIMES).min() > 25_000
    assert np.abs(joint.times_ns - TIMES).max() < 700
    assert joint.bound_ns.max() < direct.bound_ns.min() / 10
    assert np.abs(network.residuals_ns[0]).min() > 25_000


def test_a_loop_that_cannot_be_is_told() -> None:
    clocks = [(0, 0.0)] * 3
    pairs = [
        compared(0, 1, clocks, 1),
        compared(1, 2, clocks, 2),
        compared(0, 2, [(0, 0.0), (0, 0.0), (50_000, 0.0)], 3),
    ]
    with pytest.raises(UsageError, match="contradict each other"):
        join(pairs, HOSTS[0], TIMES)


def test_a_host_that_no_comparison_leads_to_is_named() -> None:
    clocks = [(0, 0.0)] * 4
    with pytest.raises(UsageError, match="monotonic of c, monotonic of d"):
        join([compared(0, 1, clocks, 1), compared(2, 3, clocks, 2)], HOSTS[0], TIMES)
