# SPDX-License-Identifier: Apache-2.0
"""Read what is known of pairs of hosts, of a recording of several: what they stamped, and changes of their clocks."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import FormatError
from hopscope.store import contents
from hopscope.store.engine import DuckDB
from hopscope.store.hosts import BACK, CHANGES, PROBES, THERE, UNKNOWN_RATE
from hopscope.store.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.clock.change import Change
    from hopscope.clock.samples import Samples
    from hopscope.store.schema import Table
    from hopscope.store.tables import Columns


# Older recordings do not say it.
_BY_NICS: Final = "by_nics"


def read_probes(folder: Path) -> Columns:
    """Return the columns of all probes of a recording, of its files that are whole.

    Raises
    ------
    FormatError
        A file is damaged.
    """
    return _read(folder, PROBES)


def read_changes(folder: Path) -> Columns:
    """Return the columns of all changes of clocks, as :func:`read_probes` does."""
    return _read(folder, CHANGES)


def probe_columns(pair: int, samples: Samples) -> Iterator[Columns]:
    """Yield the columns of what both hosts of a pair stamped, of each direction in which there is any."""
    for number, way in ((THERE, samples.there), (BACK, samples.back)):
        if len(way):
            yield {
                "pair": np.full(len(way), pair, np.int16),
                "way": np.full(len(way), number, np.int8),
                "sent_ns": way.sent_ns,
                "received_ns": way.received_ns,
                "bound_ns": np.full(len(way), samples.bound_ns, np.int64),
                _BY_NICS: np.full(len(way), samples.by_nics, np.int8),
            }


def change_columns(pair: int, changes: Sequence[Change | None]) -> Columns:
    """Return the columns of what was done to the clocks of the two hosts of a pair; None: nothing."""
    rows = [
        (pair, side, change.from_ns, change.until_ns, _ppt(change.rate), change.step_ns)
        for side, change in enumerate(changes)
        if change is not None
    ]
    return {
        column.name: np.array([row[place] for row in rows], column.dtype)
        for place, column in enumerate(CHANGES.columns)
    }


def _ppt(rate: float) -> int:
    """Return a rate in parts of 1e12, not less than it is."""
    return int(math.copysign(math.ceil(abs(rate) * 1e12), rate)) if math.isfinite(rate) else UNKNOWN_RATE


def _read(folder: Path, table: Table) -> Columns:
    files = parts_of(folder, table.name).whole
    if not files:
        return {column.name: np.empty(0, column.dtype) for column in table.columns}
    with closing(DuckDB(folder)) as engine:
        try:
            _, statistics = engine.described(files)
            contents.check(engine, table, files, {name for _, name in statistics})
            found = engine.columns(engine.source(table, files))
        except Exception as error:
            if engine.cause(error) is None:
                raise
            what = str(error).strip().splitlines()[0].rstrip(".")
            raise FormatError(f"{folder / table.name} cannot be read: {what}", "Restore it from a backup") from error
    return {column.name: _known(column.name, found[column.name]).astype(column.dtype) for column in table.columns}


def _known(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column without the values that older recordings do not have."""
    if name == _BY_NICS:
        return np.ma.filled(values, -1)
    if np.ma.is_masked(values):
        raise FormatError(f"the table has no {name} in places", "Restore it from a backup")
    return np.asarray(values)
