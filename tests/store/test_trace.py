# SPDX-License-Identifier: Apache-2.0
"""A trace opens in whatever state its recorder left it, and says what is missing; or says in one sentence why not."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import FormatError, HopscopeError, UsageError
from hopscope.store.meta import FILE, Metadata
from hopscope.store.schema import TABLES
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests.store.columns import metadata, rows
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 3, 101


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with files of three tables."""
    folder = tmp_path_factory.mktemp("whole") / "trace"
    with TraceWriter(folder, metadata(reasons={2: "IT'S"}), file_rows=ROWS) as written:
        for table in ("packets", "sockets", "flows"):
            for number in range(FILES):
                written.append(table, rows(table, ROWS, number * ROWS))
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def count(trace: Trace, table: str) -> int:
    ((found,),) = trace.rows(f"SELECT count(*) FROM {table}")
    return int(found)


def test_every_table_is_there_with_its_columns_and_types(whole: Path) -> None:
    with Trace(whole) as trace:
        assert trace.warnings == []
        for table in TABLES:
            assert trace.names(f"SELECT * FROM {table.name}") == [column.name for column in table.columns]
        assert count(trace, "packets") == count(trace, "flows") == FILES * ROWS
        assert count(trace, "drops") == 0
        assert trace.rows("SELECT * FROM points") == [(1, "rx.driver")]
        assert trace.rows("SELECT * FROM reasons") == [(2, "IT'S")]


def test_a_trace_without_a_single_row(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", metadata(points={})):
        pass
    with Trace(tmp_path / "t") as trace:
        assert trace.warnings == []
        assert [count(trace, name) for name in (*(table.name for table in TABLES), "points", "reasons")] == [0] * (
            len(TABLES) + 2
        )


def test_rows_that_say_the_same_count_once(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", metadata(), file_rows=ROWS) as written:
        for _ in range(3):
            written.append("flows", rows("flows", ROWS))
            written.append("packets", rows("packets", ROWS))
    with Trace(tmp_path / "t") as trace:
        assert (count(trace, "flows"), count(trace, "packets")) == (ROWS, 3 * ROWS)


@pytest.mark.parametrize(
    "name", ["it's", 'a"b', "tr[a-c]ce", "*", "what?", "{a,b}", "a b", "ä", "%d", "~", "x=1", "$HOME"]
)
def test_folders_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "trace=1"
    with TraceWriter(folder, metadata(), file_rows=ROWS) as written:
        for number in range(FILES):
            written.append("packets", rows("packets", ROWS, number * ROWS))
    assert len(list((folder / "packets").iterdir())) == FILES
    with Trace(folder) as trace:
        assert trace.names("SELECT * FROM packets") == list(rows("packets", 1))
        assert count(trace, "packets") == FILES * ROWS


@pytest.mark.slow
@settings(max_examples=60)
@given(table=st.sampled_from(["packets", "sockets", "flows"]), number=st.integers(1, FILES), share=st.floats(0, 1))
def test_cut_at_any_byte_the_others_are_read(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, table: str, number: int, share: float
) -> None:
    folder = tmp_path_factory.mktemp("cut") / "t"
    shutil.copytree(whole, folder)
    file = folder / table / f"{number:06}.parquet"
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(min(int(share * size), size - 1))
    with Trace(folder) as trace:
        assert trace.warnings == [f"1 of {FILES} files of {table} are cut off: left out"]
        for name in ("packets", "sockets", "flows"):
            assert count(trace, name) == (FILES - (name == table)) * ROWS
        expected = set(range(FILES * ROWS)) - set(range((number - 1) * ROWS, number * ROWS))
        column = "flow" if table == "flows" else "time_ns"
        assert {row[0] for row in trace.rows(f"SELECT {column} FROM {table}")} == expected


@pytest.mark.slow
@settings(max_examples=60)
@given(at=st.floats(0, 1, exclude_max=True), length=st.integers(1, 64))
def test_bytes_that_are_others_are_one_sentence_or_nothing(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, at: float, length: int
) -> None:
    folder = tmp_path_factory.mktemp("other") / "t"
    shutil.copytree(whole, folder)
    file = folder / "packets" / "000002.parquet"
    with file.open("r+b") as opened:
        opened.seek(int(at * file.stat().st_size))
        opened.write(b"\xa5" * length)
    said = complaint(folder)
    assert "\n" not in said
    assert said == "" or str(file) in said


def complaint(folder: Path) -> str:
    """Return what is said of a trace that cannot be read, or nothing."""
    try:
        with Trace(folder) as trace:
            trace.rows("SELECT * FROM packets")
    except HopscopeError as error:
        return str(error)
    return ""


def test_files_that_were_not_completed_are_overlooked(copy: Path) -> None:
    (copy / "packets" / ".000004.parquet.partial").write_bytes(b"PAR1")
    (copy / "packets" / "notes.txt").write_text("x")
    with Trace(copy) as trace:
        assert (trace.warnings, count(trace, "packets")) == ([], FILES * ROWS)


def test_a_table_that_is_gone(copy: Path) -> None:
    shutil.rmtree(copy / "packets")
    with Trace(copy) as trace:
        assert count(trace, "packets") == 0
        assert count(trace, "sockets") == FILES * ROWS


def test_wrong_queries_are_one_sentence(whole: Path) -> None:
    with Trace(whole) as trace:
        for query in ("SELECT", "SELECT nothing FROM packets", "SELECT * FROM nothing", "SELECT 'x"):
            with pytest.raises(UsageError) as caught, trace.by_user():
                trace.rows(query)
            assert "\n" not in str(caught.value)


def test_a_file_that_goes_while_the_trace_is_open(copy: Path) -> None:
    with Trace(copy) as trace:
        (copy / "sockets" / "000001.parquet").unlink()
        with pytest.raises(FormatError, match=f"{copy}/sockets/000001.parquet is damaged"):
            trace.rows("SELECT * FROM sockets")


def test_killed_it_says_so(copy: Path) -> None:
    killed = Metadata.read(copy)
    killed.state = "recording"
    (copy / FILE).write_bytes(killed.packed())
    with Trace(copy) as trace:
        assert trace.warnings == ["the recorder was killed or is still running: the trace ends with the last full file"]


def test_which_part_of_a_query_is_done_is_told_while_it_runs(whole: Path) -> None:
    with Trace(whole) as trace, ThreadPoolExecutor(1) as worker:
        running = worker.submit(trace.rows, "SELECT count(*) FROM range(10000000000) t WHERE hash(range) = 7")
        seen: list[float] = []
        eventually(lambda: (share := trace.share_done()) is not None and not seen.append(share), "no estimate")
        eventually(lambda: (share := trace.share_done()) is not None and share > seen[0], "the estimate stays")
        trace.interrupt()
        assert isinstance(running.exception(), KeyboardInterrupt)
        assert 0 < seen[0] < 1
        assert trace.share_done() is None
    assert trace.share_done() is None
