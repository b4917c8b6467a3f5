# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.forced import Forced, together

if TYPE_CHECKING:
    from tests.lab.forced import Ways

GRANTED = {"three": ["a", "b", "c"], "two": ["d", "e"], "one": ["f"], "none": []}


def test_each_way_is_in_a_run_and_the_best_in_most() -> None:
    assert together(GRANTED) == [
        {"three": "a", "two": "d", "one": "f"},
        {"three": "b", "two": "d", "one": "f"},
        {"three": "c", "two": "e", "one": "f"},
    ]
    assert together({}) == together({"none": []}) == []


def test_a_run_is_made_once_for_all_of_its_ways() -> None:
    made: list[Ways] = []

    def measure(ways: Ways) -> Ways:
        made.append(ways)
        return ways

    forced = Forced(GRANTED, measure)
    found = {way: forced.attached(point, way)[point] for point, ways in GRANTED.items() for way in ways}
    assert found == {way: way for ways in GRANTED.values() for way in ways}
    assert made == [together(GRANTED)[number] for number in (0, 1, 2)]


def test_a_run_that_failed_is_made_again_for_each_of_its_ways() -> None:
    failures = 0

    def measure(_: Ways) -> Ways:
        nonlocal failures
        failures += 1
        raise AssertionError

    forced = Forced(GRANTED, measure)
    for point in ("three", "two", "one"):
        with pytest.raises(AssertionError):
            forced.attached(point, GRANTED[point][0])
    assert failures == 3
