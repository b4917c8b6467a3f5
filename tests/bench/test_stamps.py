# SPDX-License-Identifier: Apache-2.0
"""The table of what stamps cost an application."""

from __future__ import annotations

import re

import pytest

from bench import stamps


def test_table_compares_with_plain_sockets_of_the_same_round() -> None:
    first = {"plain": 4.0, "kernel": 6.0, "unsampled": 8.0, "stamped": 10.0, "read": 2.0, "collect": 4.0}
    lines = stamps.costs_table([first, {name: value * 3 for name, value in first.items()}]).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["1.00", "1.50", "2.00", "2.50", "0.50", "1.00"]
    assert lines[1].split()[-3:-1] == ["8.0", "(6.0..10.0)"]


@pytest.mark.root
def test_both_protocols_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "MESSAGES", 10)
    reports = list(stamps.run(rounds=2))
    assert [report.partition(",")[0] for report in reports] == ["TCP", "UDP"]
    for report in reports:
        costs = [float(value) for value in re.findall(r" ([\d.]+) \(", report)]
        assert len(costs) == 6
        assert all(cost > 0 for cost in costs)
