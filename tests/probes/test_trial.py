# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.errors import KernelError, LoadError
from hopscope.probes import trial
from hopscope.probes.attach import attach
from hopscope.probes.catalogue import POINTS
from hopscope.probes.trial import try_everything
from tests import leftovers

pytestmark = pytest.mark.root


@pytest.mark.slow
def test_every_way_is_tried_and_taken_away_again() -> None:
    before = leftovers.seen()
    points = try_everything()
    assert leftovers.left_since(before) == set()
    assert [(point.point, [way.way for way in point.ways]) for point in points] == [
        (point.name, [way.name for way in point.ways]) for point in POINTS.values()
    ]
    for point in points:
        granted = [way.way for way in point.ways if way.granted]
        assert [way.way for way in point.ways if way.chosen] == granted[:1]
        assert point.chosen == (granted[0] if granted else None)
        assert all(way.reason for way in point.ways if not way.granted)


@pytest.mark.slow
def test_refusal_of_one_program_refuses_its_ways_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_core(program: object, kind: str) -> list[object]:
        if getattr(program, "name", "") == "rx_core":
            raise LoadError("rx_core cannot be attached", errno=16, program="rx_core")
        return list(attach(program, kind))  # type: ignore[arg-type]

    expected = {point.point: point.chosen for point in try_everything()}
    monkeypatch.setattr(trial, "attach", refuse_core)
    found = {point.point: point for point in try_everything()}
    assert {name: point.chosen for name, point in found.items()} == {**expected, "rx.core": None}
    assert found["rx.core"].ways[0].reason == "errno 16 (Device or resource busy)"


def test_missing_object_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> object:
        raise KernelError("The BPF object rx.bpf.o is not built")

    monkeypatch.setattr(trial, "object_path", missing)
    with pytest.raises(KernelError, match="not built"):
        try_everything()
