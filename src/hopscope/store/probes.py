# SPDX-License-Identifier: Apache-2.0
"""Read what is known of pairs of hosts, of a recording of several: what they stamped, and changes of their clocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from hopscope.errors import FormatError
from hopscope.store.hosts import CHANGES, PROBES, UNKNOWN_RATE
from hopscope.store.trace import whole_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.clock.change import Change
    from hopscope.store.schema import Table
    from hopscope.store.tables import Columns


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
    files, _ = whole_files(folder / table.name)
    if not files:
        return {column.name: np.empty(0, column.dtype) for column in table.columns}
    names = ", ".join(column.name for column in table.columns)
    with duckdb.connect() as engine:
        try:
            found = engine.read_parquet([str(file) for file in files]).select(names).fetchnumpy()
        except (duckdb.Error, RuntimeError) as error:
            what = str(error).strip().splitlines()[0].rstrip(".")
            raise FormatError(f"{folder / table.name} cannot be read: {what}", "Restore it from a copy") from error
    return {column.name: np.asarray(found[column.name], column.dtype) for column in table.columns}
