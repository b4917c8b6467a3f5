# SPDX-License-Identifier: Apache-2.0
"""The cost of a reading is held against what the tools take in the same round."""

from __future__ import annotations

import time

import pytest

from bench import counters
from bench.counters import cost, costs_table


def test_ratios_are_to_a_whole_reading_of_the_same_round() -> None:
    rounds = [
        {"counters": (2.0, 1.0), "all": (4.0, 3.0), "tools": (10.0, 9.0)},
        {"counters": (8.0, 1.0), "all": (8.0, 3.0), "tools": (40.0, 9.0)},
    ]
    head, ours, whole, tools = costs_table(rounds).splitlines()
    assert head.split() == ["ms", "ms", "of", "CPU", "to", "ours", "with", "settings"]
    assert ours.endswith("0.75 (0.62..0.88)")
    assert whole.endswith("1.00 (1.00..1.00)")
    assert tools.endswith("3.75 (3.12..4.38)")


def test_cost_is_wall_and_cpu_time_in_ms() -> None:
    wall_ms, cpu_ms = cost(lambda: time.sleep(0.05))
    assert wall_ms >= 50
    assert cpu_ms < wall_ms


@pytest.mark.root
def test_it_reads_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "NAMESPACES", (2,))
    (text,) = counters.run(rounds=1)
    assert int(text.split()[2].replace(",", "")) > 500
    assert "nstat, ip, tc, ss, cat" in text
