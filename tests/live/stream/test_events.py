# SPDX-License-Identifier: Apache-2.0
"""A condition selects the same events as they come, by NumPy, as of a recording, by SQL: whatever the condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from hopscope.model.event_batch import Numbers
from hopscope.model.event_fields import FIELDS
from tests.live.replayed import NAMES, Replayed, conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hopscope.live.stream.events import Events


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


@pytest.mark.parametrize("name", NAMES)
def test_in_pieces_events_are_the_same(replayed: dict[str, Replayed], name: str) -> None:
    def rows(events: Iterable[Events]) -> list[tuple[object, ...]]:
        listed = [zip(*(values_of(each, field.name) for field in FIELDS), strict=True) for each in events]
        return sorted((row for each in listed for row in each), key=repr)

    for whole in replayed[name].parts:
        pieces = list(whole.pieces(7))
        assert all(len(piece) for piece in pieces) or not len(whole)
        assert len(pieces) >= len(whole) / 16  # those of one time are not parted
        assert rows(pieces) == rows([whole])


def values_of(events: Events, name: str) -> list[object]:
    """Return a column's values; None: not known."""
    column = events.column(name)
    if isinstance(column, Numbers):
        known = [True] * len(events) if column.known is None else column.known.tolist()
        return [value if is_known else None for value, is_known in zip(column.values.tolist(), known, strict=True)]
    return [None if code < 0 else column.names[code] for code in column.codes.tolist()]
