# SPDX-License-Identifier: Apache-2.0
"""Tables that only one trace has: what goes in comes out, and a description that is wrong is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.errors import FormatError
from hopscope.store.meta import FILE, Metadata
from hopscope.store.schema import TEXT, Column, Table
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGES = Table(
    "e_kmem_mm_page_alloc",
    "the kernel passes the tracepoint kmem:mm_page_alloc",
    (
        Column("time_ns", np.int64, "when"),
        Column("order", np.int8, "unsigned int order"),  # a word of SQL
        Column("device", TEXT, "__data_loc char[] device"),
    ),
)


def described(**tables: Any) -> Metadata:  # noqa: ANN401 # as the field is
    return Metadata("0.1", started_ns=1, realtime_ns=2, points={}, **tables)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path / "trace", described(tables=[PAGES])) as writer:
        writer.append(
            PAGES.name,
            {
                "time_ns": np.array([5, 3]),
                "order": np.array([-1, 7], np.int8),
                "device": np.array(["it's", "ünï"], object),
            },
        )
    return tmp_path / "trace"


def test_what_goes_in_comes_out_with_its_types(folder: Path) -> None:
    with Trace(folder) as trace:
        found = trace.columns(f"SELECT * FROM {PAGES.name} ORDER BY time_ns")
        assert trace.warnings == []
    assert {name: column.dtype.name for name, column in found.items()} == {
        "time_ns": "int64",
        "order": "int8",
        "device": "object",
    }
    assert {name: column.tolist() for name, column in found.items()} == {
        "time_ns": [3, 5],
        "order": [7, -1],
        "device": ["ünï", "it's"],
    }


def test_a_table_without_rows_is_there(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace", described(tables=[PAGES])):
        pass
    with Trace(tmp_path / "trace") as trace:
        assert trace.names(f"SELECT * FROM {PAGES.name}") == ["time_ns", "order", "device"]
        assert trace.rows(f"SELECT * FROM {PAGES.name}") == []


def test_the_metadata_say_what_the_table_is(folder: Path) -> None:
    found = Metadata.read(folder).tables
    assert [(table.name, table.meaning, table.once) for table in found] == [(PAGES.name, PAGES.meaning, ())]
    assert [(each.name, np.dtype(each.dtype), each.meaning) for each in found[0].columns] == [
        (each.name, np.dtype(each.dtype), each.meaning) for each in PAGES.columns
    ]


def test_a_trace_without_tables_of_its_own_opens(folder: Path) -> None:
    document = json.loads((folder / FILE).read_text())
    del document["tables"], document["checksum"]
    (folder / FILE).write_text(json.dumps(document))
    with Trace(folder) as trace:
        assert trace.metadata.tables == []


def renamed(table: dict[str, Any]) -> None:
    table["name"] = '../x" AS SELECT 1; --'


def taken(table: dict[str, Any]) -> None:
    table["name"] = "packets"


def quoted(table: dict[str, Any]) -> None:
    table["columns"][0]["name"] = 'time_ns"'


def of_no_type(table: dict[str, Any]) -> None:
    table["columns"][0]["dtype"] = "float64"


def empty(table: dict[str, Any]) -> None:
    table["columns"] = []


def nameless(table: dict[str, Any]) -> None:
    del table["columns"][0]["name"]


@pytest.mark.parametrize("damage", [renamed, taken, quoted, of_no_type, empty, nameless])
def test_a_wrong_description_is_refused(folder: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / FILE).read_text())
    damage(document["tables"][0])
    (folder / FILE).write_text(json.dumps(document))
    with pytest.raises(FormatError, match="is damaged"):
        Trace(folder)
