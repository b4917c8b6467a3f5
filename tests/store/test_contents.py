# SPDX-License-Identifier: Apache-2.0
"""Each file of a recording has what the schema says, or is refused in a sentence that names it and the column."""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
from pathlib import Path
from typing import Final

import duckdb
import pytest

from hopscope.errors import FormatError
from hopscope.store.contents import check
from hopscope.store.engine import DuckDB
from hopscope.store.schema import TABLES
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests.store.columns import metadata, rows

# Half of all tables have a column of text: those are written by the engine, the others by our own code.
_COLUMNS: Final = [(table, column) for table in TABLES for column in table.columns]
_CHANGES: Final = (
    ('REPLACE (CASE WHEN row <> 2 THEN "{0}" END AS "{0}")', "its column {0} has no value in 1 rows"),
    ('EXCLUDE ("{0}")', "it has no column {0}"),
    ('REPLACE (1.5::DOUBLE AS "{0}")', "its column {0} has values of the type DOUBLE"),
    ('REPLACE ([7] AS "{0}")', "its column {0} has values of the type INTEGER[]"),
)
JOINED_RECORDING: Final = Path(__file__).parents[1] / "recordings" / "apart"
_NO_TIME_NS: Final = (1 << 61) + 12_345


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path / "trace", metadata()) as trace:
        for table in TABLES:
            trace.append(table.name, rows(table.name, 3))
    return tmp_path / "trace"


def complaint(folder: Path) -> str:
    try:
        with Trace(folder):
            return ""
    except FormatError as error:
        return str(error)


def rewrite(file: Path, select: str, to: Path | None = None) -> Path:
    """Write a file anew, or another one, as what this query makes of its rows, `given`, with their numbers as `row`."""
    made = file.with_suffix(".made")
    query = select.replace("given", f"(SELECT *, row_number() OVER () AS row FROM read_parquet('{file}'))")
    duckdb.execute(f"COPY (SELECT * EXCLUDE (row) FROM ({query})) TO '{made}' (FORMAT parquet)")
    return made.replace(to or file)


def test_a_column_has_a_value_of_its_type_in_each_row(folder: Path) -> None:
    assert not complaint(folder)
    with contextlib.closing(DuckDB(folder)) as engine:
        for number, (table, column) in enumerate(_COLUMNS):
            file = folder / table.name / "000001.parquet"
            for change, said in _CHANGES if number % 8 == 0 else _CHANGES[:1]:
                strange = file.with_name(f"{len(list(file.parent.iterdir())) + 1:06}.parquet")
                rewrite(file, f"SELECT * {change.format(column.name)} FROM given", strange)
                if column.nullable:
                    check(engine, table, [strange], ())
                else:
                    whole = re.escape(f"{strange} is damaged: {said.format(column.name)}")
                    with pytest.raises(FormatError, match=whole):
                        check(engine, table, [strange], ())


def test_of_several_files_the_one_is_named(folder: Path) -> None:
    (folder / "packets" / "000002.parquet").write_bytes((folder / "packets" / "000001.parquet").read_bytes())
    rewrite(folder / "packets" / "000002.parquet", "SELECT * EXCLUDE (skb) FROM given")
    assert re.match(r".*/packets/000002.parquet is damaged: it has no column skb", complaint(folder))


def test_a_time_is_not_believed_to_be_what_statistics_say(folder: Path) -> None:
    file = folder / "packets" / "000001.parquet"
    rewrite(file, f"SELECT * REPLACE ({_NO_TIME_NS} AS time_ns) FROM given")
    content, end = ends_of(file)
    file.write_bytes(content + end.replace(struct.pack("<q", _NO_TIME_NS), struct.pack("<q", 7)))
    assert duckdb.execute(f"SELECT max(time_ns) FROM read_parquet('{file}')").fetchall() == [(7,)]
    assert complaint(folder).startswith(f"{file} is damaged: its column time_ns has {_NO_TIME_NS}, which it cannot be")


def test_times_and_counts_are_of_what_can_have_been(folder: Path) -> None:
    limited = [(table.name, column.name) for table in TABLES for column in table.columns if _is_limited(column.name)]
    for table, name in limited:
        file = folder / table / "000001.parquet"
        kept = file.read_bytes()
        for value in (-(1 << 63), -1 if name == "lost" else (1 << 63) - 1):
            rewrite(file, f"SELECT * REPLACE ('{value}'::BIGINT AS {name}) FROM given")
            assert complaint(folder).startswith(f"{file} is damaged: its column {name} has {value}, which it cannot be")
        file.write_bytes(kept)
    assert {name for _, name in limited} >= {"until_ns", "lost", "offset_ns"}


def _is_limited(name: str) -> bool:
    return name.endswith("_ns") or name == "lost"


def test_a_value_is_not_believed_to_be_there(folder: Path) -> None:
    file = folder / "qdiscs" / "000001.parquet"
    rewrite(file, "SELECT * REPLACE (CASE WHEN row <> 2 THEN handle END AS handle) FROM given")
    content, end = ends_of(file)
    for at in (at for at, byte in enumerate(end) if byte == 2):  # 1, as Thrift writes it
        file.write_bytes(content + end[:at] + b"\0" + end[at + 1 :])
        with contextlib.suppress(duckdb.Error):
            said = duckdb.execute(f"SELECT stats_null_count FROM parquet_metadata('{file}')").fetchall()
            if not any(nulls for (nulls,) in said):
                break
    else:
        pytest.fail("there is no place that says how many are NULL")
    assert complaint(folder).startswith(f"{file} is damaged: its column handle has no value in 1 rows")


def ends_of(file: Path) -> tuple[bytes, bytes]:
    """Return what comes before the description at the end of a Parquet file, and that."""
    written = file.read_bytes()
    at = len(written) - 8 - int.from_bytes(written[-8:-4], "little")
    return written[:at], written[at:]


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("hosts", "REPLACE (host + 1::SMALLINT AS host)", "its hosts are not numbered from 0 on"),
        ("clocks", "REPLACE (0::SMALLINT AS host)", "it has the clocks of 1 of 2 hosts"),
        ("packets", "REPLACE ((-1)::SMALLINT AS cpu)", "its column cpu has -1, which is of none of its 2 hosts"),
        ("threads", "REPLACE (9000000::INTEGER AS tid)", "its column tid has 9000000, which is of none of its 2 hosts"),
    ],
)
def test_a_joined_trace_has_the_hosts_that_its_numbers_are_of(
    table: str, change: str, said: str, tmp_path: Path
) -> None:
    joined = shutil.copytree(JOINED_RECORDING, tmp_path / "joined")
    for file in (joined / table).glob("*.parquet"):
        rewrite(file, f"SELECT * {change} FROM given")
    assert said in complaint(joined)
