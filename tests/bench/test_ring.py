# SPDX-License-Identifier: Apache-2.0
"""The table of what a record costs, and the program that fills the ring."""

from __future__ import annotations

import pytest

from bench import ring


def test_table_compares_with_the_bulk_reader_of_the_same_round() -> None:
    rounds = [{"bulk": 5.0, "count": 100.0, "copy": 500.0}, {"bulk": 10.0, "count": 300.0, "copy": 1000.0}]
    head, bulk, count, copy = ring.costs_table(rounds).splitlines()
    assert bulk.split()[-4:] == ["7.5", "(6.2..8.8)", "133.3", "1.0"]
    assert count.split()[-1] == "25.0"
    assert copy.split()[-1] == "100.0"
    assert len(head) < 80


@pytest.mark.root
def test_each_reader_sees_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "RECORDS", 1000)  # a reader that sees another number raises
    assert "1000 records" in next(ring.run(rounds=2))
