# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hopscope.model.rank_test import (
    benjamini_hochberg,
    bucket_of_part,
    rank_difference,
    share_difference,
    student,
)
from tests.shared import first


def sliced(values: list[list[int]], buckets: int = 50) -> np.ndarray:
    return np.array([np.bincount(each, minlength=buckets) for each in values])


def test_the_effect_is_cliffs_delta() -> None:
    before, after = [[1, 2, 3, 3]], [[2, 3, 4, 9, 9]]
    pairs = list(product(before[0], after[0]))
    delta = sum((y > x) - (y < x) for x, y in pairs) / len(pairs)
    assert rank_difference(sliced(before), sliced(after)).effect == pytest.approx(delta)


def test_two_runs_of_the_same_kind_are_the_same_as_often_as_promised() -> None:
    chance = np.random.default_rng(7)
    hits = sum(
        rank_difference(*(sliced(chance.integers(0, 50, (20, 40)).tolist()) for _ in range(2))).probability < 0.05
        for _ in range(300)
    )
    assert hits < 300 * 0.10


def test_what_drifts_within_a_run_is_no_difference() -> None:
    chance = np.random.default_rng(11)

    def drifting() -> np.ndarray:
        return sliced([(chance.integers(0, 10, 1000) + level).tolist() for level in chance.integers(0, 30, 20)])

    found = [rank_difference(drifting(), drifting()).probability for _ in range(100)]
    assert sum(each < 0.01 for each in found) <= 5


def test_a_shift_is_found() -> None:
    chance = np.random.default_rng(3)
    before = sliced((chance.integers(0, 20, (20, 50))).tolist())
    after = sliced((chance.integers(5, 25, (20, 50))).tolist())
    found = rank_difference(before, after)
    assert found.probability < 1e-6
    assert 0.3 < found.effect < 0.6


def test_a_tail_is_found_where_ranks_hardly_move() -> None:
    before = sliced([[1] * 99 + [2]] * 20)
    after = sliced([[1] * 95 + [40] * 5] * 20)
    assert abs(rank_difference(before, after).effect) < 0.1
    assert share_difference(before, after, 0.99).effect == pytest.approx(0.04)


def test_nothing_is_no_difference() -> None:
    assert rank_difference(sliced([[]]), sliced([[1]])).probability == 1.0


def test_the_bucket_of_a_part() -> None:
    assert bucket_of_part(sliced([[1, 1], [2, 9]]), 0.5) == 1
    assert bucket_of_part(sliced([[1, 1], [2, 9]]), 0.75) == 2


def test_false_discovery_rates_are_those_of_benjamini_and_hochberg() -> None:
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([0.9, 0.001]) == pytest.approx([0.9, 0.002])
    assert benjamini_hochberg([]) == []


def test_probability_is_that_of_students_distribution() -> None:
    assert [student(ratio, freedom) for ratio, freedom in ((2.228, 10), (12.706, 1), (3.169, 10), (0, 5))] == (
        pytest.approx([0.05, 0.05, 0.01, 1.0], rel=2e-3)
    )


def fluctuating(chance: np.random.Generator, lasting: float, shift: int = 0, slices: int = 20) -> np.ndarray:
    """Return a run whose level fluctuates; each fluctuation lasts for this part of the run."""
    steps = 1_000
    kept = np.exp(-1 / (steps * lasting)) if lasting else 0.0
    level = np.zeros(steps)
    for step in range(1, steps):
        level[step] = kept * level[step - 1] + np.sqrt(1 - kept**2) * chance.normal()
    at = chance.integers(0, steps, 1_000)
    values = (level[at] if lasting else 0) + chance.normal(size=len(at))
    buckets = np.clip(4 * (values + 5), 0, 49).astype(int) + shift
    counts = np.zeros((slices, 60), np.int64)
    np.add.at(counts, (at * slices // steps, buckets), 1)
    return counts


@pytest.mark.parametrize("lasting", first([1 / 20, 0.0, 1 / 200, 1 / 40, 1 / 10]))
def test_runs_that_fluctuate_are_found_to_differ_no_more_often_than_stated(lasting: float) -> None:
    chance = np.random.default_rng(5)
    found = 0
    for _ in range(40):  # comparisons of 20 hops, none of which differs
        pairs = [(fluctuating(chance, lasting), fluctuating(chance, lasting)) for _ in range(20)]
        rates = benjamini_hochberg([rank_difference(*pair).probability for pair in pairs])
        found += min(rates) < 0.05
    assert found <= 40 * 0.05 + 2  # 2 are expected; more than 4 of 40 have a probability of 5 %


def test_shift_is_found_although_runs_fluctuate() -> None:
    chance = np.random.default_rng(6)
    found = [rank_difference(fluctuating(chance, 1 / 200), fluctuating(chance, 1 / 200, 6)) for _ in range(20)]
    assert sum(each.probability < 0.01 for each in found) >= 19
    assert all(0.4 < each.effect < 0.8 for each in found)


def test_one_slice_with_all_values_tells_nothing() -> None:
    burst = sliced([[]] * 19 + [[7] * 500])
    assert rank_difference(burst, sliced([[9] * 25] * 20)).probability == 1.0
