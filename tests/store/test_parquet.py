# SPDX-License-Identifier: Apache-2.0
"""Files of integers that are written page by page: another's reader finds the same, whatever the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.store.parquet import PAGE_ROWS, IntegerFile

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]

_SQL = {1: "TINYINT", 2: "SMALLINT", 4: "INTEGER", 8: "BIGINT"}
_RANDOM = np.random.default_rng(1009)


def written(path: Path, columns: Columns, page: int = PAGE_ROWS) -> Path:
    file = IntegerFile({name: values.dtype for name, values in columns.items()})
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, page):
        file.add({name: values[start : start + page] for name, values in columns.items()})
    assert file.rows == rows
    with path.open("wb") as out:
        file.write(out)
    return path


def check(path: Path, columns: Columns) -> None:
    with duckdb.connect() as engine:
        found = engine.execute(f"SELECT * FROM '{path}'").fetchnumpy()
        types = engine.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    assert [(name, kind) for name, kind, *_ in types] == [
        (name, _SQL[values.itemsize]) for name, values in columns.items()
    ]
    for name, values in columns.items():
        assert np.array_equal(found[name], values), name


def encodings(path: Path) -> dict[str, set[str]]:
    with duckdb.connect() as engine:
        rows = engine.execute(f"SELECT path_in_schema, encodings FROM parquet_metadata('{path}')").fetchall()
    return {name: {each.strip() for each in text.split(",")} for name, text in rows}


# A block of differences has a multiple of 128 of them, a run of numbers a multiple of 8.
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 128, 129, 130, 1009, PAGE_ROWS, PAGE_ROWS + 1])
def test_any_number_of_rows(tmp_path: Path, rows: int) -> None:
    columns: Columns = {
        "time_ns": np.cumsum(_RANDOM.integers(0, 1 << 20, rows)),
        "cpu": _RANDOM.integers(0, 2, rows).astype(np.int16),
        "skb": _RANDOM.integers(-(1 << 47), -1, rows),
        "netns": _RANDOM.choice([0, 4026531840], rows),
    }
    check(written(tmp_path / "a.parquet", columns), columns)


@pytest.mark.parametrize("step", [0, 1, 255, 256, 1 << 16, 1 << 40])
def test_times_that_rise_by_any_step_and_fall_back(tmp_path: Path, step: int) -> None:
    times = np.cumsum(_RANDOM.integers(0, step + 1, 5003)) + (1 << 60)
    times[2003] -= step
    columns = {"time_ns": times}
    path = written(tmp_path / "a.parquet", columns, 1009)
    check(path, columns)
    assert ("DELTA_BINARY_PACKED" in encodings(path)["time_ns"]) == (step < 1 << 40)


def test_pages_of_one_column_are_encoded_each_as_it_suits(tmp_path: Path) -> None:
    low = np.arange(1000, dtype=np.int32) % 23
    columns: Columns = {
        "fits_then_not": np.concatenate([low, low * 1009, low - 1, low + 200]),
        "few_then_many": np.concatenate([low // 12, low, low * 7, low // 12]).astype(np.int64) << 40,
        "few_now_and_then": np.concatenate([low // 12, low // 6, low // 12 * 3, low // 12]).astype(np.int64) << 40,
        "never": np.concatenate([low * 1009] * 4),
    }
    path = written(tmp_path / "a.parquet", columns, 1000)
    check(path, columns)
    found = encodings(path)
    assert all("RLE_DICTIONARY" in found[name] for name in columns if name != "never")
    assert "RLE_DICTIONARY" not in found["never"]


@st.composite
def integers(draw: st.DrawFn) -> NDArray[Any]:
    dtype = np.dtype(draw(st.sampled_from(["i1", "i2", "i4", "i8"])))
    limits = np.iinfo(dtype)
    values = st.integers(int(limits.min), int(limits.max)) | st.integers(-3, 3)
    return np.array(draw(st.lists(values, min_size=1, max_size=400)), dtype)


@given(integers(), st.integers(1, 40))
def test_any_values(tmp_path_factory: pytest.TempPathFactory, values: NDArray[Any], page: int) -> None:
    columns = {"any": values, "some_ns": values.astype(np.int64)}
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    check(written(path, columns, page), columns)


def test_a_file_takes_little_room(tmp_path: Path) -> None:
    rows = 5 * PAGE_ROWS
    columns: Columns = {
        "time_ns": np.cumsum(_RANDOM.integers(0, 60000, rows)),
        "point": _RANDOM.integers(0, 14, rows).astype(np.int16),
        "netns": _RANDOM.choice([0, 4026531840], rows),
    }
    assert written(tmp_path / "a.parquet", columns).stat().st_size < 3 * rows
