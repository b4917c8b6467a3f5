# SPDX-License-Identifier: Apache-2.0
"""How many events a trace has, from the ends of its files alone: the events themselves are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb

from hopscope.errors import FormatError
from hopscope.store.meta import Metadata
from hopscope.store.trace import whole_files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_EVENT_TABLES: Final = ("packets", "sockets", "cpu")
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
    own = [
        table.name
        for table in Metadata.read(folder).tables
        if table.name.startswith(_PREFIX) and any(column.name == "time_ns" for column in table.columns)
    ]
    return Counts(
        _sum("SELECT sum(num_rows) FROM parquet_file_metadata(?)", folder, (*_EVENT_TABLES, *own)),
        _sum("SELECT sum(lost) FROM read_parquet(?)", folder, LOSS_TABLES),
    )


def _sum(query: str, folder: Path, tables: Iterable[str]) -> int:
    try:
        files = [str(file) for table in tables for file in whole_files(folder / table)[0]]
        if not files:
            return 0
        with duckdb.connect(config={"threads": 1}) as engine:
            return int(engine.execute(query, [files]).fetchall()[0][0] or 0)
    except (duckdb.Error, OSError) as error:
        raise FormatError(f"{folder} is damaged: {str(error).splitlines()[0]}", "Restore it from a backup") from error
