# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hopscope.clock.curve import Curve
from hopscope.errors import UsageError
from tests.clock.simulated import FIRST, SECOND_HOST

SECOND = 10**9


def curve(values: list[float], breaks: list[bool] | None = None, rate: float = 0.0, base_ns: int = 0) -> Curve:
    """Return one with a knot each second, 100 ns of room and a rate that is known to 10 ppb."""
    value = np.array(values, np.float64)
    rates = np.full(len(value), rate)
    return Curve(
        *(FIRST, SECOND_HOST, base_ns, np.arange(len(value)) * SECOND, value, value - 100, value + 100),
        *(rates, rates - 1e-8, rates + 1e-8, np.array(breaks or [False] * len(value))),
    )


def converted(made: Curve, *seconds: float) -> tuple[list[int], list[int]]:
    times, bounds = made.convert(np.array([round(second * SECOND) for second in seconds]))
    return (times - np.array([round(second * SECOND) for second in seconds])).tolist(), bounds.tolist()


def test_between_knots_the_value_is_on_the_line() -> None:
    assert converted(curve([0, 1000, 1000]), 0, 0.25, 1, 1.5) == ([0, 250, 1000, 1000], [101, 101, 101, 101])


def test_between_knots_far_apart_the_frequency_may_have_changed() -> None:
    near = curve([0, 0])
    far = replace(near, at_ns=near.at_ns * 100)
    _, bounds = converted(far, 0, 50)
    assert bounds == [101, 100 + 2500 + 1]  # 2 ppb a second, for 50 s from either side


def test_a_large_base_loses_nothing() -> None:
    values, _ = converted(curve([0, 1000], base_ns=10**18 + 1), 0.25)
    assert values == [10**18 + 251]


def test_beyond_the_ends_the_rate_leads_on_and_the_bound_grows() -> None:
    values, bounds = converted(curve([0, 1000], rate=1e-6), 2, 11, -10)
    assert values == [2000, 11_000, -10_000]
    assert bounds == [100 + 10 + 2, 100 + 100 + 101, 100 + 100 + 101]


def test_across_a_break_the_bound_covers_both_sides() -> None:
    values, bounds = converted(curve([0, 50_000, 50_000], [True, False, False]), 0.4, 0.6, 1.5)
    assert values == [0, 50_000, 50_000]
    assert 50_100 <= bounds[0] <= 50_120
    assert 50_100 <= bounds[1] <= 50_120
    assert bounds[2] == 101


def test_a_single_knot_is_a_curve() -> None:
    values, bounds = converted(curve([7]), 0, 1, -1)
    assert values == [7, 7, 7]
    assert bounds == [101, 112, 112]


def test_breaks_are_told_between_times() -> None:
    made = curve([0, 0, 9, 9], [False, True, False, True])
    times = np.array([0, 0.5, 1.2, 1.4, 2.5, 3]) * SECOND
    assert made.breaks_between(times.astype(np.int64)).tolist() == [False, True, True, True, False, False]


def test_a_clock_that_was_set_back_has_no_inverse() -> None:
    with pytest.raises(UsageError, match="set back"):
        curve([0, -2 * SECOND]).inverted()
