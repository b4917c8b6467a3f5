# SPDX-License-Identifier: Apache-2.0
"""What is made of the kernel's figures for each program."""

from __future__ import annotations

import math

import pytest

from bench.hits import Cost, over_floor, overall, programs_table, summary

FLOOR = {"often": Cost(10, 60), "seldom": Cost(10, 50), "floor only": Cost(10, 40)}
PLAIN = {"often": Cost(3000, 100), "seldom": Cost(1000, 250), "rx only": Cost(9, 9)}
GROUPED = {"often": Cost(5000, 110), "seldom": Cost(9000, 240)}
ROUND = {"floor": FLOOR, "plain": PLAIN, "grouped": GROUPED}


def test_mean_over_the_floor_is_weighted_by_runs() -> None:
    assert over_floor(PLAIN, FLOOR, PLAIN) == pytest.approx((3 * 40 + 1 * 200) / 4)
    assert over_floor(GROUPED, FLOOR, PLAIN) == pytest.approx((3 * 50 + 1 * 190) / 4)
    assert math.isnan(over_floor(PLAIN, {}, PLAIN))


def test_grouping_is_compared_at_the_same_weights() -> None:
    over, grouping = overall([ROUND])
    assert over == pytest.approx([80])
    assert grouping == pytest.approx([5])


def test_table_has_what_ran_everywhere_and_the_most_expensive_first() -> None:
    head, *lines = programs_table([ROUND, ROUND]).splitlines()
    assert head.split() == ["program", "k", "hits/s", "empty", "ns/hit", "grouped", "over", "the", "empty", "one"]
    assert [line.split() for line in lines] == [
        ["seldom", "1.0", "50", "250", "240", "200", "(200..200)"],
        ["often", "3.0", "60", "100", "110", "40", "(40..40)"],
    ]


def test_program_that_ran_in_no_round_with_all_three_is_left_out() -> None:
    silent = {"floor": {}, "plain": PLAIN, "grouped": GROUPED}
    assert len(programs_table([silent]).splitlines()) == 1
    assert len(programs_table([silent, ROUND]).splitlines()) == 3


def test_summary_says_that_nothing_was_measured() -> None:
    assert summary([80.0], [5.0]).splitlines() == [
        "all programs, weighted by hits: 80.0 (80.0..80.0) ns over the empty ones",
        "grouped by interface:           +5.0 (+5.0..+5.0) ns more",
    ]
    assert "nan" in summary([], [])


def test_table_fits_the_terminal() -> None:
    name = "rx_netif_receive_list"
    window = {name: Cost(9_999_999, 9999)}
    rounds = [{"floor": {name: Cost(1, ns)}, "plain": window, "grouped": window} for ns in (100, 200, 300)]
    assert max(map(len, programs_table(rounds).splitlines())) < 80
