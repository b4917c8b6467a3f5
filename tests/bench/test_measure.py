# SPDX-License-Identifier: Apache-2.0
"""The arithmetic and the layout that all benchmarks share."""

from __future__ import annotations

import math

import pytest

from bench.measure import Spread, change_percent, table, turns


def test_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(median=3, low=2, high=4, count=5)
    assert Spread.of([1, 2, 3, 4]) == Spread(median=2.5, low=1.75, high=3.25, count=4)


def test_spread_leaves_out_what_could_not_be_measured() -> None:
    assert Spread.of([math.nan, 2, math.inf, 4]) == Spread(median=3, low=2.5, high=3.5, count=2)
    assert Spread.of([7]) == Spread(median=7, low=7, high=7, count=1)
    empty = Spread.of([math.nan])
    assert empty.count == 0
    assert math.isnan(empty.median)


@pytest.mark.parametrize(
    ("values", "form", "text"),
    [
        ([1.04, 2.04, 3.04], ".1f", "2.0 (1.5..2.5)"),
        ([-1, 0, 1], "+.1f", "+0.0 (-0.5..+0.5)"),
        ([10, 20, 400], "+.1f", "+20 (+15..+210)"),
        ([-410, -10, 0], ".1f", "-10 (-210..-5)"),
    ],
)
def test_spread_shows_digits_that_say_something(values: list[float], form: str, text: str) -> None:
    assert Spread.of(values).shown(form) == text


def test_turns_go_forth_and_back_and_each_pair_begins_with_another() -> None:
    assert ["".join(order) for order in turns("abc", 8)] == ["abc", "cba", "bca", "acb", "cab", "bac", "abc", "cba"]


def test_change_is_against_what_was_before() -> None:
    assert change_percent(200, 150) == -25
    assert change_percent(50, 75) == 50
    assert math.isnan(change_percent(0, 1))


def test_table_aligns_names_to_the_left_and_figures_to_the_right() -> None:
    rows = [["a", "x", "1.5"], ["long name", "yy", "100"]]
    assert table(("", "", "ns"), rows, names=2).splitlines() == [
        "                ns",
        "a          x   1.5",
        "long name  yy  100",
    ]
    assert table(("name", "ns"), [["a", "1"]]).splitlines() == ["name  ns", "a      1"]
