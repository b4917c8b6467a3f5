# SPDX-License-Identifier: Apache-2.0
"""The benchmark of frames: what it takes from the command's last line, and the table of made-up figures."""

from __future__ import annotations

import pytest

from bench.tools import ToolError
from bench.wire import Figures, figures_of, figures_table

SAID = (
    "1,500 events sent to hop0; 300 not sent, because its queue was full; "
    "200 lost, because the recording's rings were full"
)


def test_shares_are_of_all_events() -> None:
    assert figures_of(SAID, 0.5, 0.25) == Figures(3000, 6000, 0.15, 0.1)
    assert figures_of("1 event sent to hop0", 1, 1) == Figures(1, 1, 0, 0)
    with pytest.raises(ToolError, match="says no number"):
        figures_of("hopscope: no", 1, 1)


def test_the_table_has_rates_and_shares() -> None:
    row = figures_table({"a flood": [Figures(3000, 6000, 0.15, 0.1)]}).splitlines()[1]
    assert row.split() == ["a", "flood", "3.00k", "(3.00k..3.00k)", "6.00k", "(6.00k..6.00k)", "15.0%", "10.0%"]
