# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.frames import own_cost
from hopscope.verbs.frames.own_cost import OwnCost

if TYPE_CHECKING:
    from collections.abc import Iterable


def percents(taken_s: Iterable[float], monkeypatch: pytest.MonkeyPatch, over_s: float = 10.0) -> list[float]:
    """Return what is said at the end of each second, of which this process ran so long."""
    clocks = {"monotonic": 50.0, "process_time": 3.0}
    monkeypatch.setattr(own_cost.time, "monotonic", lambda: clocks["monotonic"])
    monkeypatch.setattr(own_cost.time, "process_time", lambda: clocks["process_time"])
    own = OwnCost(over_s)
    said = []
    for each_s in taken_s:
        clocks["monotonic"] += 1.0
        clocks["process_time"] += each_s
        said.append(own.percent())
    return said


def test_what_is_done_each_tenth_second_is_in_each_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    said = percents([0.02 + (second % 10 == 9) * 0.1 for second in range(40)], monkeypatch)
    assert said[8] == pytest.approx(2.0)
    assert said[10:] == pytest.approx([3.0] * 30)


def test_interval_that_is_longer_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert percents([0.1, 0.3], monkeypatch, over_s=0.5) == pytest.approx([10.0, 30.0])
