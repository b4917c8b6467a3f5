# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.live.recorder.options import RecordOptions
from hopscope.verbs.drops.collector import DropCollector

if TYPE_CHECKING:
    import pytest


def test_between_intervals_rings_are_emptied_when_they_fill_up(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = DropCollector(RecordOptions(profiles=(), points=("skb.drop",)), ["reason"])
    read: list[float] = []
    full = 0.0
    monkeypatch.setattr(collector, "fullness", lambda: full)
    monkeypatch.setattr(collector, "read", lambda: read.append(full) or iter(()))
    for full in (0.0, 0.01, 0.1, 0.02, 1.0):  # noqa: B007 # what the ring says
        collector.drain()
    assert read == [0.1, 1.0]
