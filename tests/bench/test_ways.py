# SPDX-License-Identifier: Apache-2.0
"""What a way adds, out of figures made up here."""

from __future__ import annotations

from bench.ways import ways_table


def test_a_way_is_held_against_nothing_in_the_same_round() -> None:
    rounds = [{"off": 2000.0, "again": 2010.0, "raw_tp": 2060.0}, {"off": 3000.0, "again": 2990.0, "raw_tp": 3060.0}]
    assert [line.split() for line in ways_table(rounds).splitlines()[1:]] == [
        ["off", "2500"], ["again", "2500", "+0", "(-5..+5)"], ["raw_tp", "2560", "+60", "(+60..+60)"],
    ]  # fmt: skip
