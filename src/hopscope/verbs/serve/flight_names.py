# SPDX-License-Identifier: Apache-2.0
"""What numbers in events mean, kept for as long as there may be events with them, and no longer.

The kernel side says once what a flow, a thread, a device or a queueing discipline is. Who keeps the last seconds for
days would have to keep all of that. So it is made to say it again now and then: what was said before the last but one
time is of no event that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.store.schema import BY_NAME, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.verbs.record.flight import Columns

# Table → what its rows are about. Of those of one thing, the later ones hold from their time on.
_ABOUT: Final = {
    "flows": ("flow",),
    "threads": ("tid",),
    "devices": ("netns", "ifindex"),
    "qdiscs": ("netns", "ifindex"),
}
_TIME: Final = "time_ns"


class Names:
    """Rows of the tables that say what numbers mean, of this turn and the one before; of stacks and symbols, all.

    There are at most 16,384 stacks, and as many symbols as places that drop packets.
    """

    def __init__(self) -> None:
        self._before: dict[str, _Said] = {}
        self._now: dict[str, _Said] = {}
        self._lasting: list[tuple[str, Columns]] = []

    def __len__(self) -> int:
        """Return how many rows there are, of stacks and symbols apart."""
        return sum(len(said.rows) for turn in (self._before, self._now) for said in turn.values())

    def add(self, table: str, columns: Columns) -> None:
        """Take rows."""
        if table in _ABOUT:
            self._now.setdefault(table, _Said(table)).add(_tuples(table, columns))
        else:
            self._lasting.append((table, columns))

    def turn(self) -> None:
        """Forget what was said before the last turn: all that is needed is said anew from now on."""
        self._before, self._now = self._now, {}

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yield all rows, each table once; they stay kept."""
        yield from self._lasting
        for table in _ABOUT:
            said = _Said(table)
            for turn in (self._before, self._now):
                said.add(turn[table].rows if table in turn else [])
            if said.rows:
                yield table, _columns(table, said.rows)


class _Said:
    """Rows of a table, without those that say what was said before of the same."""

    def __init__(self, table: str) -> None:
        names = [column.name for column in BY_NAME[table].columns]
        self._key = [names.index(name) for name in _ABOUT[table]]
        self._rest = [place for place, name in enumerate(names) if name != _TIME]
        self._last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.rows: list[tuple[Any, ...]] = []

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            key, rest = tuple(row[place] for place in self._key), tuple(row[place] for place in self._rest)
            if self._last.get(key) != rest:
                self._last[key] = rest
                self.rows.append(row)


def _tuples(table: str, columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[column.name].tolist() for column in BY_NAME[table].columns), strict=True))


def _columns(table: str, rows: list[tuple[Any, ...]]) -> Columns:
    return {
        column.name: np.array(values, object if column.dtype == TEXT else column.dtype)
        for column, values in zip(BY_NAME[table].columns, zip(*rows, strict=True), strict=True)
    }
