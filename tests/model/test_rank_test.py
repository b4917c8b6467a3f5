# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from hopscope.model.rank_test import bucket_of_part, holm, rank_difference, share_difference


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
    assert found.probability < 1e-9
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


def test_holm_is_as_strict_as_it_must_be() -> None:
    assert holm([0.04, 0.001, 0.02]) == pytest.approx([0.04, 0.003, 0.04])
    assert holm([]) == []
    assert comb(3, 1) * 0.001 == pytest.approx(holm([0.5, 0.001, 0.6])[1])
