# SPDX-License-Identifier: Apache-2.0
"""Which hop is named, out of times made up here."""

from __future__ import annotations

from bench.rules import Figures, figures_table, slowest

WITHOUT = Figures(30_000, {"rx.core": 50_000, "rx.ip": 300, "rx.tcp": 700})
WITH = Figures(3_000, {"rx.core": 60_000, "rx.ip": 600, "rx.tcp": 152_400})


def test_the_hop_with_the_most_time_more_is_named_and_not_the_longest() -> None:
    assert slowest(WITHOUT, WITH) == "rx.tcp"
    assert slowest(WITH, WITHOUT) == "rx.ip"


def test_times_to_tcp_are_sums_and_stand_beside_what_was_published() -> None:
    rows = [line.split() for line in figures_table([WITHOUT], [WITH]).splitlines()]
    assert [rows[4][number] for number in (0, 1, 2, 4, 6)] == ["to", "TCP", "51.0µs", "213µs", "4.18"]
    assert rows[5][-1] == "16.67"
    assert rows[6] == ["packets/s", "30.0k", "3.00k", "0.10"]
