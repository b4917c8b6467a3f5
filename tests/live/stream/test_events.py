# SPDX-License-Identifier: Apache-2.0
"""A condition selects the same events as they come, by NumPy, as of a recording, by SQL: whatever the condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.live.replayed import NAMES, Replayed, conditions

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def replayed() -> Iterator[dict[str, Replayed]]:
    found = {name: Replayed(name) for name in NAMES}
    yield found
    for each in found.values():
        each.close()


@settings(max_examples=60, deadline=None)
@given(text=conditions())
def test_a_condition_selects_the_same_live_and_recorded(replayed: dict[str, Replayed], text: str) -> None:
    for name, each in replayed.items():
        assert each.selected(text) == each.recorded(text), name


@pytest.mark.parametrize(
    "text", ["not hop > 0", "hop > 0", "point == e_tcp_tcp_probe and snd_cwnd >= 10", "time_ns > 0"]
)
def test_it_selects_something(replayed: dict[str, Replayed], text: str) -> None:
    each = replayed["events"]
    assert each.recorded(text)
    assert each.selected(text) == each.recorded(text)
