# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from hopscope.model.fisher import fisher


@pytest.mark.parametrize(
    ("ours", "of_ours", "theirs", "of_theirs"),
    [(3, 4, 1, 4), (1, 10, 11, 14), (7, 7, 10, 993), (0, 5, 0, 5), (2, 2, 2, 2), (5, 9, 100, 391), (0, 3, 40, 60)],
)
def test_probability_is_the_exact_one(ours: int, of_ours: int, theirs: int, of_theirs: int) -> None:
    having = ours + theirs
    every = comb(of_ours + of_theirs, having)
    likely = [
        Fraction(comb(of_ours, number) * comb(of_theirs, having - number), every)
        for number in range(max(0, having - of_theirs), min(of_ours, having) + 1)
    ]
    here = Fraction(comb(of_ours, ours) * comb(of_theirs, theirs), every)
    exact = float(sum(each for each in likely if each <= here))
    assert fisher(ours, of_ours, theirs, of_theirs) == pytest.approx(exact, rel=1e-6, abs=0)
