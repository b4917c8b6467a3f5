# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.histogram import SLOTS, Histogram
from hopscope.term.bar import Axis

values = st.lists(st.integers(0, 20 * 10**9), min_size=1, max_size=50)


@given(values, st.integers(10, 24))
def test_axis_holds_all_samples(values_ns: list[int], width: int) -> None:
    histogram = Histogram.from_values(values_ns)
    axis = Axis.of([Histogram.empty(), histogram], width)
    assert 0 <= axis.first < axis.end <= SLOTS
    assert axis.end - axis.first >= width
    assert histogram.counts[axis.first : axis.end].sum() == histogram.count
    for unicode in (True, False):
        bar = axis.bar(histogram, unicode=unicode)
        assert len(bar) == len(axis.title(unicode=unicode)) == width
        assert ("█" if unicode else "#") in bar


def test_bar_shows_where_and_how_many() -> None:
    histogram = Histogram.from_values([1_000] * 8 + [1_000_000] * 4 + [900_000_000])
    axis = Axis.of([histogram], 16)
    bar = axis.bar(histogram, unicode=True)
    assert bar == "█       ▄      ▁"
    assert axis.title(unicode=True) == "1µs           1s"


def test_bar_of_nothing_is_blank() -> None:
    axis = Axis.of([Histogram.from_values([1_000])], 10)
    assert axis.bar(Histogram.empty(), unicode=True) == " " * 10


def test_title_names_the_overflow() -> None:
    axis = Axis.of([Histogram.from_values([270_000_000_000])], 10)
    assert axis.title(unicode=True).endswith(">256s")


def test_one_sample_among_a_million_is_seen() -> None:
    histogram = Histogram.from_values([1_000] * 1_000_000 + [1_000_000])
    assert "▁" in Axis.of([histogram], 10).bar(histogram, unicode=True)
