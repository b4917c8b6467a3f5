# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.cdf import PERCENTILES, distance, points, shift
from hopscope.model.histogram import Histogram, upper_bounds_s

# Even in the number of bits, so that every bucket is tried; above 256 s, too.
durations = st.integers(0, 35).flatmap(lambda bits: st.integers(0, 2**bits - 1))
samples = st.lists(durations, min_size=1, max_size=120)


def part_within(values: list[int], ns: float) -> float:
    return sum(value <= ns for value in values) / len(values)


def exact_distance(one: list[int], other: list[int]) -> float:
    return max(abs(part_within(one, ns) - part_within(other, ns)) for ns in (*one, *other))


def exact_percentile(values: list[int], q: float) -> int:
    """Return the smallest value that `q` per cent of the values do not exceed."""
    rank = q / 100 * len(values)
    return next(value for place, value in enumerate(sorted(values), 1) if place >= rank)


@given(samples)
def test_points_are_exact_at_the_bounds_of_buckets(values: list[int]) -> None:
    x_ns, part = points(Histogram.from_values(values))
    assert len(x_ns) == len(part)
    assert (np.diff(x_ns) >= 0).all()
    assert (np.diff(part) >= 0).all()
    assert (part[0], part[-1], x_ns[-1]) == (0.0, 1.0, max(values))
    for bound_ns in x_ns[1:]:
        assert part[np.searchsorted(x_ns, bound_ns, side="right") - 1] == pytest.approx(part_within(values, bound_ns))


@given(samples, st.sampled_from(PERCENTILES))
def test_points_and_percentile_tell_the_same(values: list[int], q: float) -> None:
    histogram = Histogram.from_values([value + 100 for value in values])
    x_ns, part = points(histogram)
    found = histogram.percentile(q)
    lower, upper = x_ns[np.searchsorted(part, q / 100) - 1], x_ns[np.searchsorted(part, q / 100 - 1e-12)]
    assert found is not None
    assert lower - 1e-6 <= found <= upper + 1e-6


def test_points_of_nothing_are_none() -> None:
    assert [len(each) for each in points(Histogram.empty())] == [0, 0]


@given(samples, samples)
def test_distance_of_the_samples_is_within_its_bounds(one: list[int], other: list[int]) -> None:
    found = distance(Histogram.from_values(one), Histogram.from_values(other))
    assert found is not None
    assert found.at_least - 1e-9 <= exact_distance(one, other) <= found.at_most + 1e-9
    assert abs(found.before - found.after) == pytest.approx(found.at_least)
    assert found.before == pytest.approx(part_within(one, found.at_ns))
    assert found.after == pytest.approx(part_within(other, found.at_ns))


def test_distance_is_exact_where_no_bucket_is_shared() -> None:
    found = distance(Histogram.from_values([1_000] * 3 + [9_000]), Histogram.from_values([5_000] * 4))
    assert found is not None
    assert (found.at_least, found.at_most) == (0.75, 0.75)


def test_distance_says_what_the_buckets_hide() -> None:
    upper_ns = int(upper_bounds_s()[100] * 1e9)
    found = distance(Histogram.from_values([upper_ns] * 5), Histogram.from_values([upper_ns - 1] * 5))
    assert found is not None
    assert (found.at_least, found.at_most) == (0.0, 1.0)


def test_chance_is_the_critical_value_of_the_test() -> None:
    found = distance(Histogram.from_values([1] * 200), Histogram.from_values([1] * 300))
    assert found is not None
    assert found.by_chance == pytest.approx(1.6276 * (1 / 200 + 1 / 300) ** 0.5, rel=1e-3)


def test_samples_of_one_distribution_are_not_farther_apart_than_chance_has_it() -> None:
    random = np.random.default_rng(7)
    beyond = 0
    for _ in range(200):
        one, other = (Histogram.from_values(random.lognormal(10, 1, 500).astype(int)) for _ in range(2))
        found = distance(one, other)
        assert found is not None
        beyond += found.at_least > found.by_chance
    assert beyond <= 8  # 2 expected; more than 8 once in 4,000 seeds


@given(samples, samples, st.sampled_from(PERCENTILES))
def test_ratio_of_the_exact_percentiles_is_within_its_bounds(one: list[int], other: list[int], q: float) -> None:
    moved = shift(Histogram.from_values(one), Histogram.from_values(other), q)
    assert moved is not None
    before_ns, after_ns = exact_percentile(one, q), exact_percentile(other, q)
    if before_ns:
        assert moved.least * (1 - 1e-9) <= after_ns / before_ns <= moved.most * (1 + 1e-9)
    assert moved.before_ns == Histogram.from_values(one).percentile(q)
    assert moved.after_ns == Histogram.from_values(other).percentile(q)


def test_what_moved_less_than_a_bucket_is_not_known_to_have_moved() -> None:
    base = Histogram.from_values([1_000_000] * 10)
    near, far = (shift(base, Histogram.from_values([ns] * 10), 50) for ns in (1_010_000, 1_300_000))
    assert near is not None
    assert far is not None
    assert (near.known, far.known) == (False, True)
    assert far.least < 1.3 < far.most


def test_ratio_to_the_first_bucket_is_open() -> None:
    moved = shift(Histogram.from_values([0] * 3), Histogram.from_values([500] * 3), 50)
    assert moved is not None
    assert (moved.ratio, moved.most) == (None, inf)


def test_nothing_can_be_said_without_samples() -> None:
    some = Histogram.from_values([5])
    assert distance(some, Histogram.empty()) is None
    assert shift(Histogram.empty(), some, 50) is None
