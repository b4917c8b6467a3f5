# SPDX-License-Identifier: Apache-2.0
"""The tables, as documented and as engines can have them."""

from __future__ import annotations

import numpy as np
import pytest

from hopscope.store.schema import BY_NAME, TABLES, TEXT, Table


def test_names_are_there_once() -> None:
    assert len(BY_NAME) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_can_be_had_by_any_engine(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    # Names that need no quotes, and signed integers: Spark reads unsigned 64-bit ones as decimals.
    assert all(name.isidentifier() and name == name.lower() for name in (table.name, *names))
    assert all(column.dtype == TEXT or np.issubdtype(column.dtype, np.signedinteger) for column in table.columns)
    assert set(table.once) <= set(names)
    assert all(column.meaning for column in table.columns)


def test_events_begin_alike() -> None:
    begin = ["time_ns", "cpu", "point", "tid"]
    for name in ("packets", "sockets", "cpu", "drops"):
        assert [column.name for column in BY_NAME[name].columns[:4]] == begin
