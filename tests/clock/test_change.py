# SPDX-License-Identifier: Apache-2.0
"""Clocks that a time daemon changes, and says so."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.clock import adjustment
from hopscope.clock.change import Change, Look, between, turn
from hopscope.clock.change import clock_changes as known_by_first
from hopscope.clock.offline import smooth
from hopscope.clock.online import Follower
from hopscope.clock.phc import Domain
from hopscope.clock.samples import Samples
from tests.clock.simulated import FIRST, SECOND, SECOND_HOST, START_NS, Ahead, Network, Ns, on_second, windows

if TYPE_CHECKING:
    from hopscope.clock.curve import Curve

COUNT = 60
# Hardly any delay: there is no room but for what was told.
NEAR = Network((0, 0), (10.0, 10.0))
LOOK = Look(
    adjustment.Adjustment(10, 1e-6, synchronized=True, max_error_ns=0, estimated_error_ns=0, tai_offset_s=37),
    Domain(-500, 20),
)


def turning(turns: list[tuple[int, float]]) -> Ahead:
    """Return by how much a clock is ahead whose frequency changes at some times."""

    def of(times_ns: Ns) -> Ns:
        value = np.zeros(len(times_ns))
        for at_ns, rate in turns:
            value += np.maximum(times_ns - at_ns, 0) * rate
        return np.rint(value).astype(np.int64)

    return of


def told(turns: list[tuple[int, float]]) -> list[Change]:
    """Return the changes as they are known: each between two looks."""
    return [Change(at_ns - SECOND // 3, at_ns + SECOND // 6, rate) for at_ns, rate in turns]


def assert_holds(curve: Curve, truth: Ahead, at_ns: Ns) -> None:
    converted = curve.convert(at_ns)
    assert (np.abs(converted.times_ns - on_second(truth, at_ns)) <= converted.bound_ns).all()


# As chrony does: seldom, and by much. As ntpd and systemd-timesyncd do: each second a bit.
SELDOM = st.lists(st.tuples(st.integers(2, 55), st.floats(-5e-6, 5e-6)), max_size=3)
OFTEN = st.floats(-18e-9, 18e-9).map(lambda rate: [(number, rate) for number in range(2, 56, 2)])


@pytest.mark.slow
@settings(max_examples=25)
@given(SELDOM | OFTEN, st.integers(0, SECOND // 2), st.integers(0, 2**32))
def test_the_bound_holds_across_changes_that_are_told(turns: list[tuple[int, float]], phase_ns: int, seed: int) -> None:
    turns = [(START_NS + number * SECOND // 2 + phase_ns, rate) for number, rate in turns]
    truth = turning(turns)
    every = windows(truth, COUNT, NEAR, seed)
    curve = smooth(Samples.joined(every), changes=told(turns))
    assert_holds(curve, truth, np.linspace(curve.at_ns[0], curve.at_ns[-1], 700).astype(np.int64))
    follower = Follower(FIRST, SECOND_HOST)
    ends = [START_NS + number * SECOND // 2 + 4_000_000 for number in range(-1, COUNT)]
    for samples, (before_ns, now_ns) in zip(every, itertools.pairwise(ends), strict=True):
        follower.add(samples, sum(abs(rate) for at_ns, rate in turns if before_ns < at_ns <= now_ns))
        assert_holds(follower.curve(), truth, follower.curve().at_ns[-1:])


@settings(max_examples=15)
@given(SELDOM, st.integers(-(10**15), 10**15), st.floats(-50e-6, 50e-6), st.integers(0, 2**32))
def test_what_is_done_to_the_second_clock_is_told_by_the_first_ones_time(
    turns: list[tuple[int, float]], offset_ns: int, drift: float, seed: int
) -> None:
    turns = [(START_NS + number * SECOND // 2 + SECOND // 5, rate) for number, rate in turns]
    own = turning(turns)

    def truth(times_ns: Ns) -> Ns:
        return own(times_ns) + offset_ns + np.rint((times_ns - START_NS) * drift).astype(np.int64)

    # Few packets hurry: where nobody is told, a line across the change fits.
    samples = Samples.joined(windows(truth, COUNT, Network((0, 0), (3e5, 3e5)), seed))
    by_second = [
        Change(*(int(on_second(truth, np.array([end]))[0]) for end in change[:2]), change.rate)
        for change in told(turns)
    ]
    known = known_by_first(samples, [], by_second)
    for change, (at_ns, rate) in zip(known, turns, strict=True):
        assert change.from_ns <= at_ns <= change.until_ns
        assert change.until_ns - change.from_ns < SECOND
        assert change.rate == rate
    curve = smooth(samples, changes=known)
    assert_holds(curve, truth, np.linspace(curve.at_ns[0], curve.at_ns[-1], 700).astype(np.int64))


def test_a_large_change_begins_another_line_and_a_small_one_does_not() -> None:
    at_ns = START_NS + 15 * SECOND
    for rate, breaks in ((1e-6, 2), (10e-9, 0)):
        truth = turning([(at_ns, rate)])
        every = windows(truth, COUNT, Network(), 1)
        curve = smooth(Samples.joined(every), changes=told([(at_ns, rate)]))
        assert np.count_nonzero(curve.breaks[:-1]) == breaks
        follower = Follower(FIRST, SECOND_HOST)
        for number, samples in enumerate(every):
            follower.add(samples, rate if number == 30 else 0.0)
        assert follower.breaks == bool(breaks)


def test_looks_that_are_alike_are_no_change() -> None:
    later = LOOK._replace(adjustment=dataclasses.replace(LOOK.adjustment, at_ns=99), to_monotonic=Domain(-530, 15))
    assert between(LOOK, later) is None


def test_a_frequency_and_a_step_are_seen_between_looks() -> None:
    faster = dataclasses.replace(LOOK.adjustment, at_ns=99, rate=1.5e-6)
    assert between(LOOK, Look(faster, LOOK.to_monotonic)) == Change(10, 99, pytest.approx(5e-7), 0)
    later = dataclasses.replace(LOOK.adjustment, at_ns=99)
    assert between(LOOK, Look(later, Domain(-1500, 0))) == Change(10, 99, 0.0, 1000)


def test_changes_of_both_clocks_add_up_and_their_times_can_be_told_by_another_clock() -> None:
    changes = [Change(1, 2, -3e-9), None, Change(1, 2, 4e-9)]
    assert turn(changes) == pytest.approx(7e-9)
    assert Change(100, 200, 1e-9).shifted(-50, 5) == Change(45, 155, 1e-9)
