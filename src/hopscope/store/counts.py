# SPDX-License-Identifier: Apache-2.0
"""How many events a trace has, from the ends of its files alone: the events themselves are not read."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.store.engine import DuckDB
from hopscope.store.meta import Metadata
from hopscope.store.parts import parts_of
from hopscope.store.schema import BY_NAME, EVENT_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hopscope.store.schema import Table

_PREFIX: Final = "e_"
# Events that are missing: of probe points, and of tracepoints.
LOSS_TABLES: Final = ("losses", "e_losses")


class Counts(NamedTuple):
    """Events of traces.

    Attributes
    ----------
    events
        Rows of events, those of tracepoints included.
    lost
        Events that found no room in a buffer.
    """

    events: int
    lost: int


def event_counts(folders: Iterable[Path]) -> Counts:
    """Count the events of traces, all together.

    Raises
    ------
    FormatError
        One of them is no trace, or damaged.
    """
    found = [_counts(folder) for folder in folders]
    return Counts(sum(each.events for each in found), sum(each.lost for each in found))


def _counts(folder: Path) -> Counts:
    described = Metadata.read(folder).tables
    own = [
        table.name
        for table in described
        if table.name.startswith(_PREFIX) and any(column.name == "time_ns" for column in table.columns)
    ]
    losses = [BY_NAME["losses"], *(table for table in described if table.name in LOSS_TABLES)]
    with closing(DuckDB(folder)) as engine:
        events = [file for table in (*EVENT_TABLES, *own) for file in parts_of(folder, table).whole]
        try:
            lost = sum(_lost(engine, table, parts_of(folder, table.name).whole) for table in losses)
            return Counts(engine.described(events)[0], lost)
        except Exception as error:
            if engine.cause(error) is None:
                raise
            raise FormatError(
                f"{folder} is damaged: {str(error).splitlines()[0]}", "Restore it from a backup"
            ) from error


def _lost(engine: DuckDB, table: Table, parts: Sequence[Path]) -> int:
    return int(engine.rows(f"SELECT sum(lost) FROM ({engine.source(table, parts)}) l")[0][0] or 0) if parts else 0
