# SPDX-License-Identifier: Apache-2.0
"""Ratios of ways to select, out of figures made up here."""

from __future__ import annotations

from bench.offload import Figures, figures_table


def test_ratios_are_to_the_reader_at_the_same_share() -> None:
    found = {
        ("1/8", "reader"): [Figures(1_000, 0.0, 0.2, 2_000)],
        ("1/8", "--keep"): [Figures(1_000, 0.25, 0.05, 1_900)],
        ("all", "reader"): [Figures(8_000, 0.0, 0.0, 2_000)],
    }
    rows = [line.split() for line in figures_table(found).splitlines()]
    assert rows[2] == ["1/8", "--keep", "1.00k", "25.0%", "5.0%", "0.25", "1900", "(1900..1900)", "0.95"]
    assert rows[3][5] == "nan"
