# SPDX-License-Identifier: Apache-2.0
"""The hulls against the same question asked of every pair of points."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from hopscope.clock.bounds import STEEPEST, Corridor, Limits, hull

POINTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(-300, 300)), min_size=1, max_size=8)
TIMES = np.array([0.0, 333_333.0, 10**6, 2.0 * 10**6])


def limits(points: list[tuple[int, int]], more: float = 0.0) -> Limits:
    at, value = np.array(points, np.float64).T
    return Limits(at, value + more)


def every_line(upper: Limits, lower: Limits) -> list[tuple[float, float]]:
    """Return height and slope of all lines that touch two of the limits, or are as steep as may be, and cross none."""
    points = [*zip(*upper, strict=True), *zip(*lower, strict=True)]
    slopes = {-STEEPEST, STEEPEST}
    for (at, value), (other_at, other_value) in itertools.combinations(points, 2):
        if at != other_at:
            slopes.add((other_value - value) / (other_at - at))
    lines = [(value - slope * at, slope) for slope in slopes if abs(slope) <= STEEPEST for at, value in points]
    return [
        (height, slope)
        for height, slope in lines
        if (height + slope * upper.at_ns <= upper.value_ns + 1e-6).all()
        and (height + slope * lower.at_ns >= lower.value_ns - 1e-6).all()
    ]


@given(POINTS, POINTS, st.integers(0, 1000))
def test_what_is_possible_is_what_some_line_reaches(
    above: list[tuple[int, int]], below: list[tuple[int, int]], apart: int
) -> None:
    upper, lower = limits(above, apart + 0.5), limits(below, -apart)
    corridor = Corridor.between(upper, lower)
    lines = every_line(upper, lower)
    assert (corridor is None) == (not lines)
    assume(corridor is not None)
    assert corridor is not None
    reached = np.array([[height + slope * time for time in TIMES] for height, slope in lines])
    found = corridor.at(TIMES)
    np.testing.assert_allclose(found.high, reached.max(axis=0), atol=1e-3)
    np.testing.assert_allclose(found.low, reached.min(axis=0), atol=1e-3)
    middle = corridor.middle(TIMES)
    assert (middle <= found.high + 1e-6).all()
    assert (middle >= found.low - 1e-6).all()


@given(POINTS, st.sampled_from([1, -1]))
def test_all_points_are_on_one_side_of_the_hull(points: list[tuple[int, int]], sign: int) -> None:
    given_points = limits(points)
    corners = hull(given_points, sign=sign)
    assert set(zip(*corners, strict=True)) <= set(zip(*given_points, strict=True))
    along = np.interp(given_points.at_ns, *corners)
    assert (sign * (given_points.value_ns - along) >= -1e-9).all()
