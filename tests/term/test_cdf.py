# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hopscope.gate import passed
from hopscope.model.cdf import Curve
from hopscope.model.histogram import Histogram
from hopscope.term.cdf import render_cdf, verdicts
from hopscope.term.terminal import Terminal, columns

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("count", "width"), [(2, 40), (2, 80), (2, 120), (1, 80), (3, 80), (3, 40)])
def test_cdf_looks_as_agreed(count: int, width: int, curves: list[Curve], golden: Callable[[str, str], None]) -> None:
    golden(f"cdf_{count}_{width}", render_cdf(curves[:count], Terminal(width)))


def test_cdf_in_ascii_looks_as_agreed(curves: list[Curve], golden: Callable[[str, str], None]) -> None:
    text = render_cdf(curves[:2], Terminal(80, unicode=False))
    assert text.isascii()
    golden("cdf_2_80_ascii", text)


def test_no_line_is_wider_than_the_terminal(curves: list[Curve]) -> None:
    six = [*curves, *(Curve(f"/a/rather/long/path/to/run-{n}.jsonl", curves[n].histogram) for n in range(3))]
    for width in range(40, 161):
        for line in render_cdf(six, Terminal(width)).splitlines():
            assert columns(line) <= width, line


def test_colour_changes_nothing_but_colour(curves: list[Curve]) -> None:
    painted = passed(render_cdf(curves, Terminal(100, colour=True)))
    assert "\x1b[36mA" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == render_cdf(curves, Terminal(100))


def test_plot_passes_the_median_at_half_the_height() -> None:
    # 1 ms, on an axis from 10 µs to 100 ms, is its middle.
    curve = Curve("one", Histogram.from_values([11_000] + [990_000] * 8 + [99_000_000]))
    lines = render_cdf([curve], Terminal(86, unicode=False)).splitlines()
    (half,) = [line for line in lines if line.startswith(" 50% |")]
    (axis,) = [line for line in lines if line.strip().startswith("10us")]
    drawn = [column for column, char in enumerate(half) if char in "aA"]
    assert drawn
    assert all(abs(column - axis.index("1ms")) <= 3 for column in drawn)


def test_curve_without_samples_is_named_and_not_drawn(curves: list[Curve]) -> None:
    text = render_cdf([Curve("tx.nic", Histogram.empty()), curves[0]], Terminal(80))
    assert text.startswith("A  tx.nic: no samples\nB  before.jsonl: 20,000 samples")
    assert "against" not in text
    assert render_cdf([Curve("tx.nic", Histogram.empty())], Terminal(80)) == "A  tx.nic: no samples"


def said(first: list[int], other: list[int]) -> list[str]:
    pair = [Curve("one", Histogram.from_values(first)), Curve("other", Histogram.from_values(other))]
    return verdicts(list(zip("AB", pair, strict=True)))


def test_words_say_by_how_much_it_moved_and_where_it_is_farthest_apart() -> None:
    moved, apart = said([1_000_000] * 100, [4_000_000] * 100)
    assert moved.startswith("B against A: p50 is 4.00 times as long (3.")
    assert apart.startswith(
        "Kolmogorov-Smirnov distance 1.000; by chance alone it would be below 0.230 in 99 of 100 cases. "
    )
    assert apart.endswith("The largest distance is at 1.06ms, which 100.0% of A and 0.0% of B do not exceed.")


def test_words_claim_no_difference_that_is_not_there() -> None:
    moved, apart = said([1_000_000] * 10 + [100], [1_000_000] * 10 + [200])
    assert moved.count("is the same within the accuracy of the buckets") == 2
    # Ten of each are in one bucket: whether they are the same cannot be known.
    assert "0.091 to 0.909 (uncertainty due to the buckets)" in apart
    _, apart = said([100, 200_000], [100_000, 200])
    assert apart.endswith("no significant difference with this number of samples.")


def test_words_do_not_divide_by_the_first_bucket() -> None:
    moved, _ = said([10] * 9, [5_000] * 9)
    assert moved.startswith("B against A: p50 cannot be compared: it lies in the first bucket, p99 cannot")
