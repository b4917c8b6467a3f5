# SPDX-License-Identifier: Apache-2.0
"""The benchmark of subscribers: the table of made-up figures."""

from __future__ import annotations

from bench.subscribers import Figures, figures_table


def test_the_table_has_rates_and_shares() -> None:
    found = {("four fields", "one is stalled"): [Figures(400_000, 1_200_000, 0.25, 0.5, 6_000_000)]}
    assert figures_table(found).splitlines()[1].split()[5:] == [
        *("400k", "1.20M", "(1.20M..1.20M)", "6.00M", "(6.00M..6.00M)", "25.0%", "50.0%")
    ]  # fmt: skip
