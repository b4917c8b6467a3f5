# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.histogram import Histogram
from hopscope.term.time_axis import TimeAxis

durations = st.integers(0, 45).flatmap(lambda bits: st.integers(0, 2**bits - 1))


@given(st.lists(durations, min_size=1, max_size=20))
def test_axis_holds_all_samples_between_round_ends(values: list[int]) -> None:
    axis = TimeAxis.of([Histogram.from_values([value]) for value in values])
    assert axis.low_ns < axis.high_ns
    assert axis.low_ns <= max(min(values), 20)
    assert axis.high_ns * (1 + 1e-9) >= max(values)
    for end_ns in (axis.low_ns, axis.high_ns):
        assert f"{end_ns:.3e}"[:5] in {"1.000", "2.000", "4.000", "5.000"}
    # No longer than one step of 1, 2, 5 and a bucket beyond what it holds: the first bucket, from 20 to 60 ns, is the
    # widest; the last begins at 256 s.
    assert axis.low_ns * 3 >= min(max(min(values), 20), 256 * 10**9)
    assert axis.high_ns <= max(*values, 20) * 4


@given(st.lists(durations, min_size=2, max_size=20), st.integers(2, 20))
def test_marks_are_few_and_on_the_axis(values: list[int], most: int) -> None:
    axis = TimeAxis.of([Histogram.from_values(values)])
    marks = axis.marks_ns(most)
    assert len(marks) <= most
    assert marks == sorted(set(marks))
    assert all(0 <= axis.place(ns) <= 1 for ns in marks)


def test_place_is_by_the_logarithm() -> None:
    axis = TimeAxis(1_000.0, 1_000_000.0)
    assert [axis.place(ns) for ns in (0.0, 500.0, 1_000.0, 10_000.0, 1e6, 1e9)] == pytest.approx([0, 0, 0, 1 / 3, 1, 1])
    assert axis.marks_ns(12) == [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]
    assert axis.marks_ns(9) == [1e3, 1e4, 1e5, 1e6]
    assert axis.marks_ns(2) == [1e3, 1e5]


def test_axis_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="needs samples"):
        TimeAxis.of([Histogram.empty()])
