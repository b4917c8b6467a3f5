# SPDX-License-Identifier: Apache-2.0
"""What `online` and `offline` say of clocks that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.clock.change import Change
from hopscope.clock.curve import WANDER, Curve
from hopscope.clock.domain import ClockDomain
from hopscope.clock.offline import smooth
from hopscope.clock.online import Follower
from hopscope.clock.samples import Direction, Samples
from hopscope.errors import UsageError
from tests.clock.simulated import (
    FIRST,
    SECOND,
    SECOND_HOST,
    START_NS,
    Ahead,
    Network,
    Ns,
    ahead,
    on_second,
    window,
    windows,
)

COUNT = 24
OFFSETS = st.integers(-(10**18), 10**18)
DRIFTS = st.floats(-500e-6, 500e-6)
NETWORKS = st.builds(
    Network,
    least_ns=st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)),
    queue_ns=st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)),
    lost=st.floats(0, 0.9),
)
SEEDS = st.integers(0, 2**32)


def follow(every: list[Samples]) -> Follower:
    follower = Follower(FIRST, SECOND_HOST)
    for samples in every:
        follower.add(samples)
    return follower


def errors(curve: Curve, truth: Ahead, times_ns: Ns) -> tuple[Ns, Ns]:
    converted = curve.convert(times_ns)
    return np.abs(converted.times_ns - on_second(truth, times_ns)), converted.bound_ns


def times(every: list[Samples], count: int = 200) -> Ns:
    ends = [int(end) for samples in every for at, _ in (samples.upper(), samples.lower()) for end in at]
    return np.linspace(min(ends), max(ends), count).astype(np.int64)


@settings(max_examples=15)
@given(OFFSETS, DRIFTS, NETWORKS, SEEDS)
def test_the_bound_holds_online_at_each_window_and_until_the_next(
    offset_ns: int, drift: float, network: Network, seed: int
) -> None:
    truth = ahead(offset_ns, drift)
    follower = Follower(FIRST, SECOND_HOST)
    for samples in windows(truth, COUNT, network, seed):
        follower.add(samples)
        try:
            curve = follower.curve()
        except UsageError:
            continue
        error, bound = errors(curve, truth, curve.at_ns[-1] + np.arange(0, SECOND // 2, SECOND // 8))
        assert (error <= bound).all()
    assert (follower.breaks, follower.contradictory) == (0, 0)


@settings(max_examples=15)
@given(OFFSETS, DRIFTS, NETWORKS, SEEDS)
def test_the_bound_holds_offline_at_all_times(offset_ns: int, drift: float, network: Network, seed: int) -> None:
    truth = ahead(offset_ns, drift)
    every = Samples.joined(windows(truth, COUNT, network, seed))
    if not len(every.there) or not len(every.back):
        return
    try:
        curve = smooth(every)
    except UsageError:
        return
    error, bound = errors(curve, truth, times([every]))
    assert (error <= bound).all()


@settings(max_examples=8)
@given(OFFSETS, st.floats(-100e-6, 100e-6), st.sampled_from([-1, 1]), SEEDS)
def test_the_bound_holds_while_the_frequency_changes_as_fast_as_it_may(
    offset_ns: int, drift: float, sign: int, seed: int
) -> None:
    truth = ahead(offset_ns, drift, bend=sign * WANDER * 0.99)
    # Hardly any delay: there is no room but what the frequencies are given.
    every = windows(truth, 60, Network((0, 0), (10.0, 10.0)), seed)
    smoothed, follower = smooth(Samples.joined(every)), follow(every)
    assert not smoothed.breaks[:-1].any()
    error, bound = errors(smoothed, truth, times(every))
    assert (error <= bound).all()
    assert follower.breaks == 0
    curve = follower.curve()
    error, bound = errors(curve, truth, curve.at_ns[-1] + np.arange(0, SECOND, SECOND // 8))
    assert (error <= bound).all()


@settings(max_examples=10)
@given(
    OFFSETS, DRIFTS, st.integers(1, COUNT - 1), st.integers(50_000, 10**12), st.sampled_from([-1, 1]), NETWORKS, SEEDS
)
def test_the_bound_holds_on_both_sides_of_a_step(  # noqa: PLR0913, PLR0917
    offset_ns: int, drift: float, at: int, step_ns: int, sign: int, network: Network, seed: int
) -> None:
    # Larger than the gap of both directions, as delays are no more than that here.
    network = Network((network.least_ns[0] // 10, network.least_ns[1] // 10), (300.0, 900.0))
    truth = ahead(offset_ns, drift, ((START_NS + at * SECOND // 2 - SECOND // 10, sign * step_ns),))
    every = windows(truth, COUNT, network, seed)
    error, bound = errors(smooth(Samples.joined(every)), truth, times(every))
    assert (error <= bound).all()


def test_a_step_is_found_and_told() -> None:
    truth = ahead(0, 20e-6, ((START_NS + 5 * SECOND, 70_000),))
    every = windows(truth, 40, Network(), 1)
    follower = follow(every)
    assert follower.breaks == 1
    online = follower.curve()
    error, bound = errors(online, truth, np.linspace(online.at_ns[2], online.at_ns[-1], 500).astype(np.int64))
    assert (error <= bound).all()
    curve = smooth(Samples.joined(every))
    assert np.count_nonzero(curve.breaks[:-1]) == 1
    error, _ = errors(curve, truth, curve.at_ns)
    assert error.max() <= 60


def test_windows_that_fit_before_and_after_a_step_are_bounded_by_themselves() -> None:
    truth = ahead(0, 0.0, ((START_NS + 10 * SECOND - 1, 100_000),))
    rng = np.random.default_rng(3)
    every = windows(truth, 40, Network(), 3)
    for number in (20, 21, 22):  # the step is not seen until the queues have gone
        every[number] = window(truth, START_NS + number * SECOND // 2, Network((200_000, 200_000)), rng)
    error, bound = errors(smooth(Samples.joined(every)), truth, times(every))
    assert (error <= bound).all()


def test_a_step_that_is_too_small_to_be_seen_can_be_told() -> None:
    truth = ahead(0, 0.0, ((START_NS + 5 * SECOND - 1, 400),))
    every = windows(truth, 60, Network(), 1)
    at_ns = START_NS + 5 * SECOND - 1
    curve = smooth(Samples.joined(every), changes=[Change(at_ns, at_ns, np.inf)])
    assert np.count_nonzero(curve.breaks[:-1]) == 1
    error, bound = errors(curve, truth, times(every))
    assert (error <= bound).all()
    error, _ = errors(curve, truth, curve.at_ns)
    assert error.max() <= 60


@pytest.mark.parametrize("seed", range(5))
def test_offset_and_drift_are_found_within_19_ns_and_3_ppb(seed: int) -> None:
    truth = ahead(123, 20e-6)
    every = windows(truth, 60, Network(), seed)
    curve = smooth(Samples.joined(every))
    error, _ = errors(curve, truth, times(every))
    assert error.max() <= 19
    assert np.abs(curve.rate - 20e-6).max() <= 3e-9
    online = follow(every).curve()
    late = online.at_ns[-20:]
    error, _ = errors(online, truth, late)
    assert error.max() <= 50


def test_a_longer_way_in_one_direction_shifts_the_value_within_the_bound() -> None:
    truth = ahead(0, 0.0)
    every = windows(truth, COUNT, Network(least_ns=(500, 10_500), queue_ns=(50.0, 50.0)), 3)
    curve = smooth(Samples.joined(every))
    error, bound = errors(curve, truth, curve.at_ns)
    assert error.min() > 4_900  # half of the difference: no packets can tell
    assert bound.min() >= (500 + 10_500) / 2


def test_a_queue_that_empties_once_is_enough_offline() -> None:
    truth = ahead(0, 5e-6)
    rng = np.random.default_rng(5)
    every = windows(truth, COUNT, Network(queue_ns=(1e6, 1e6)), 5)
    every[12] = window(truth, START_NS + 12 * SECOND // 2, Network(), rng)
    curve = smooth(Samples.joined(every))
    error, bound = errors(curve, truth, curve.at_ns)
    assert (error <= bound).all()
    assert bound[12] < 1_500


def test_a_window_that_no_clocks_could_have_is_left_out_and_counted() -> None:
    truth = ahead(0, 0.0)
    every = windows(truth, COUNT, Network(), 2)
    wrong = Direction(every[10].there.sent_ns, every[10].there.received_ns - 10_000_000)
    every[10] = Samples(FIRST, SECOND_HOST, wrong, every[10].back, 10)
    follower = follow(every)
    assert (follower.contradictory, follower.breaks) == (1, 0)
    curve = smooth(Samples.joined(every))
    assert (curve.contradictory, follower.curve().contradictory) == (1, 1)
    error, bound = errors(curve, truth, times(every))
    assert (error <= bound).all()


def test_windows_of_one_direction_are_counted_and_still_limit() -> None:
    truth = ahead(0, 0.0)
    every = windows(truth, COUNT, Network(), 2)
    nothing = Direction(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for number in (0, 5, 6):
        every[number] = Samples(FIRST, SECOND_HOST, every[number].there, nothing, 10)
    every[7] = Samples(FIRST, SECOND_HOST, nothing, nothing, 10)
    follower = follow(every)
    assert follower.one_sided == 4
    error, bound = errors(follower.curve(), truth, follower.curve().at_ns)
    assert (error <= bound).all()


def test_packets_may_come_in_any_order() -> None:
    every = Samples.joined(windows(ahead(99, 3e-6), COUNT, Network(), 4))
    mixed = np.random.default_rng(4).permutation(len(every.there))
    there = Direction(every.there.sent_ns[mixed], every.there.received_ns[mixed])
    back = Direction(every.back.sent_ns[::-1], every.back.received_ns[::-1])
    one, other = smooth(every), smooth(Samples(FIRST, SECOND_HOST, there, back, every.bound_ns))
    at_ns = times([every])
    assert [array.tolist() for array in one.convert(at_ns)] == [array.tolist() for array in other.convert(at_ns)]


def test_nothing_is_said_without_both_directions() -> None:
    every = windows(ahead(0, 0.0), 3, Network(), 2)
    nothing = Direction(np.zeros(0, np.int64), np.zeros(0, np.int64))
    half = [Samples(FIRST, SECOND_HOST, samples.there, nothing) for samples in every]
    with pytest.raises(UsageError, match="not been compared"):
        follow(half).curve()
    with pytest.raises(UsageError, match="both directions"):
        smooth(Samples.joined(half))


def test_clocks_are_not_mixed_up() -> None:
    (samples,) = windows(ahead(0, 0.0), 1, Network(), 2)
    with pytest.raises(UsageError, match="are not times of"):
        Follower(FIRST, ClockDomain("three")).add(samples)


@given(OFFSETS, DRIFTS, SEEDS)
@settings(max_examples=8)
def test_there_and_back_is_where_it_began(offset_ns: int, drift: float, seed: int) -> None:
    truth = ahead(offset_ns, drift)
    every = windows(truth, COUNT, Network(), seed)
    curve = smooth(Samples.joined(every))
    at = times(every)
    there = curve.convert(at)
    back = curve.inverted().convert(there.times_ns)
    assert np.abs(back.times_ns - at).max() <= 2
    truly_back = curve.inverted().convert(on_second(truth, at))
    assert (np.abs(truly_back.times_ns - at) <= truly_back.bound_ns + 1).all()


def test_the_bound_grows_with_the_time_since_the_last_probe() -> None:
    curve = follow(windows(ahead(0, 1e-6), COUNT, Network(), 9)).curve()
    bounds = curve.convert(curve.at_ns[-1] + np.arange(5) * 10 * SECOND).bound_ns
    assert (np.diff(bounds) > 0).all()
