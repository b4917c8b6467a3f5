# SPDX-License-Identifier: Apache-2.0
"""How a trace is written: by rows and by time, in bounded memory, and what happens where there is no room."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import DiskFullError, UsageError
from hopscope.store import writer as module
from hopscope.store.meta import FILE, Metadata
from hopscope.store.tables import TableFiles
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests import disks
from tests.store.columns import metadata, rows
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def files(folder: Path, table: str) -> list[str]:
    return sorted(path.name for path in (folder / table).glob("*"))


def test_rows_are_kept_in_their_order(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "it's" / "a trace", metadata()) as written:
        for first in range(0, 1009, 101):
            written.append("packets", rows("packets", min(101, 1009 - first), first))
        written.append("flows", rows("flows", 23))
    with Trace(tmp_path / "it's" / "a trace") as trace:
        assert trace.warnings == []
        found = trace.columns("SELECT * FROM packets ORDER BY time_ns")
        expected = rows("packets", 1009)
        assert list(found) == list(expected)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
        assert trace.rows("SELECT count(*), count(DISTINCT source) FROM flows") == [(23, 23)]


def test_a_file_has_so_many_rows(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", metadata(), file_rows=100) as written:
        for _ in range(7):
            written.append("cpu", rows("cpu", 60))
        written.flush()
        # 60 wait, 120 are enough.
        assert files(tmp_path / "t", "cpu") == [f"{number:06}.parquet" for number in (1, 2, 3, 4)]
        sizes = [path.stat().st_size for path in (tmp_path / "t" / "cpu").iterdir()]
        assert written.bytes_written == sum(sizes)
    with Trace(tmp_path / "t") as trace:
        assert trace.rows("SELECT count(*) FROM cpu") == [(420,)]


def test_a_table_that_gets_no_more_rows_is_written_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    with TraceWriter(tmp_path / "t", metadata(), file_s=5) as written:
        written.append("flows", rows("flows", 1))
        now_s[0] = 4.9
        written.append("packets", rows("packets", 1))
        written.rotate()
        assert files(tmp_path / "t", "flows") == []
        now_s[0] = 5.1
        written.append("packets", rows("packets", 1))
        written.rotate()
        eventually((tmp_path / "t" / "flows" / "000001.parquet").exists)
        assert files(tmp_path / "t", "packets") == []


def test_no_more_rows_wait_than_two_files_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The disk does not go on until it may.
    goes_on, waits, most = threading.Event(), [], []
    write = TableFiles._write  # there is no other place to stop the disk

    def slow(*args: object) -> int:
        waits.append(1)
        assert goes_on.wait(20)
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(TableFiles, "_write", slow)
    appended: list[int] = []
    with TraceWriter(tmp_path / "t", metadata(), file_rows=10) as written:

        def append() -> None:
            for _ in range(10):
                written.append("packets", rows("packets", 10))
                appended.append(1)

        thread = threading.Thread(target=append)
        thread.start()
        for _ in range(50):
            threading.Event().wait(0.01)
            most.append(len(appended))
        goes_on.set()
        thread.join(20)
    assert max(most) <= 2
    assert len(waits) == 10


def test_a_folder_that_is_taken_or_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"is not empty\. Name a new folder"):
        TraceWriter(tmp_path, metadata())
    with pytest.raises(UsageError, match="cannot be created"):
        TraceWriter(tmp_path / "file" / "t", metadata())
    with pytest.raises(UsageError, match="cannot be created"):
        TraceWriter(tmp_path / "file", metadata())


def test_the_state_says_how_it_ended(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", metadata()) as written:
        assert Metadata.read(tmp_path / "t").state == "recording"
        with Trace(tmp_path / "t") as trace:
            assert "killed or is still running" in trace.warnings[0]
        written.append("packets", rows("packets", 1))
    found = Metadata.read(tmp_path / "t")
    assert found.state == "complete"
    assert 0 < (found.ended_ns or 0) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    written.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", 128) as folder:
        yield folder


def random_packets(count: int) -> dict[str, np.ndarray]:
    """Return rows that cannot be created smaller."""
    random = np.random.default_rng(7)
    return {
        name: random.integers(0, min(np.iinfo(column.dtype).max, 1 << 59), count, column.dtype)
        for name, column in rows("packets", count).items()
    }


def write_much(folder: Path) -> None:
    with TraceWriter(folder, metadata(), file_rows=500) as written:
        for _ in range(100):
            written.append("packets", random_packets(500))


@pytest.mark.root
def test_a_full_disk_is_one_sentence_and_what_was_written_can_be_read(disk: Path) -> None:
    folder = disk / "t"
    with pytest.raises(
        DiskFullError,
        match=r"cannot be written: No space left on device\. Free some space, or inodes \(df -i\); what was",
    ):
        write_much(folder)
    with Trace(folder) as trace:
        assert trace.metadata.state == "stopped: the disk is full"
        assert trace.warnings == ["recording stopped: the disk is full"]
        ((count,),) = trace.rows("SELECT count(*) FROM packets")
    assert 0 < count < 50_000
    assert count % 500 == 0


@pytest.mark.root
@pytest.mark.parametrize("left_bytes", [0, 4096])
def test_a_disk_that_was_full_before(disk: Path, left_bytes: int) -> None:
    filled = disk / "filled"
    with contextlib.suppress(OSError):
        filled.write_bytes(bytes(1 << 20))
    if left_bytes:
        with filled.open("r+b") as file:
            file.truncate(filled.stat().st_size - left_bytes)
    with pytest.raises(DiskFullError, match="cannot be written: No space left on device"):
        write_much(disk / "t")


def test_the_metadata_is_replaced_in_one_step(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", metadata()):
        before = (tmp_path / "t" / FILE).stat().st_ino
    assert (tmp_path / "t" / FILE).stat().st_ino != before
