# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.model.histogram import Histogram
from hopscope.term.histogram import render_histograms
from hopscope.term.terminal import Terminal, columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.model.snapshot import Snapshot


def only(snapshot: Snapshot, *values_ns: int) -> Snapshot:
    return replace(snapshot, hops=[replace(snapshot.hops[2], histogram=Histogram.from_values(values_ns))])


@pytest.mark.parametrize("width", [40, 80])
def test_histograms_look_as_agreed(full_snapshot: Snapshot, width: int, golden: Callable[[str, str], None]) -> None:
    golden(f"histogram_full_{width}", render_histograms(full_snapshot, Terminal(width), max_lines=16))


def test_histogram_at_full_resolution_looks_as_agreed(
    tcp_snapshot: Snapshot, golden: Callable[[str, str], None]
) -> None:
    snapshot = replace(tcp_snapshot, hops=tcp_snapshot.hops[7:8])
    text = render_histograms(snapshot, Terminal(80, unicode=False))
    assert text.isascii()
    golden("histogram_wake_80_ascii", text)


@pytest.mark.parametrize("width", [40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(full_snapshot: Snapshot, width: int) -> None:
    text = render_histograms(full_snapshot, Terminal(width))
    assert max(map(columns, text.splitlines())) <= width


def test_bounds_are_inclusive_on_the_right(tcp_snapshot: Snapshot) -> None:
    text = render_histograms(only(tcp_snapshot, 10**9, 10**9 + 1), Terminal(80))
    assert re.search(r"\(917 ms, 1\.00 s\] 1 \|", text)
    assert re.search(r"\(1\.00 s, 1\.09 s\] 1 \|", text)


def test_zero_and_overflow_have_their_lines(tcp_snapshot: Snapshot) -> None:
    text = render_histograms(only(tcp_snapshot, 0, 270 * 10**9, 270 * 10**9), Terminal(80))
    assert re.search(r"\[0 ns, 59\.6 ns\] 1 \|", text)
    assert re.search(r"\(256 s, ∞\) 2 \|", text)


def test_counts_add_up_whatever_is_merged(full_snapshot: Snapshot) -> None:
    total = full_snapshot.sample_count
    for max_lines in (None, 30, 4):
        text = render_histograms(full_snapshot, Terminal(80), max_lines=max_lines)
        assert sum(int(count.replace(",", "")) for count in re.findall(r"[\])] +([\d,]+) \|", text)) == total


def test_merging_goes_down_to_doublings(tcp_snapshot: Snapshot) -> None:
    text = render_histograms(only(tcp_snapshot, *range(1_000, 1_000_000, 500)), Terminal(80), max_lines=1)
    assert re.search(r"\(954 ns, 1\.91 µs\]", text)


def test_long_gaps_are_one_line(tcp_snapshot: Snapshot) -> None:
    text = render_histograms(only(tcp_snapshot, 1_000, 1_000_000), Terminal(80))
    assert re.search(r"^ +79 empty$", text, re.MULTILINE)


def test_without_samples_one_sentence_says_so(empty_snapshot: Snapshot) -> None:
    text = render_histograms(empty_snapshot, Terminal(80))
    assert "No packets observed: is there any traffic?" in text
    assert "|" not in text
    filtered = render_histograms(replace(empty_snapshot, filters={"port": "53"}), Terminal(200))
    assert "No packets matched port=53" in filtered
