# SPDX-License-Identifier: Apache-2.0
"""Where a trace may go: as files in memory to whoever takes them on, the same as into a folder."""

from __future__ import annotations

from dataclasses import asdict
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hopscope.store.destination import Memory
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from tests.store.columns import metadata, rows

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.store.meta import Metadata


class Taken(Memory):
    """Keeps what it is given, in order."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def begin(self, metadata: Metadata) -> None:
        self.given.append(asdict(metadata))

    def hand_on(self, table: str, number: int, data: memoryview) -> None:
        self.given.append((table, number, bytes(data)))

    def mark(self, until_ns: int) -> None:
        self.given.append(until_ns)

    def capture(self) -> BinaryIO:
        return BytesIO()

    def end(self, metadata: Metadata) -> None:
        self.given.append(asdict(metadata))


def test_files_in_memory_are_those_of_a_folder(tmp_path: Path) -> None:
    taken = Taken()
    for destination in (taken, tmp_path / "folder"):
        with TraceWriter(destination, metadata(), file_rows=100) as writer:
            for first in range(0, 1009, 101):
                writer.append("packets", rows("packets", min(101, 1009 - first), first))
            writer.append("flows", rows("flows", 23))
            writer.flush()
            written = writer.bytes_written
    began, *files, ended = taken.given
    assert (began["state"], ended["state"]) == ("recording", "complete")
    assert sum(len(data) for _, _, data in files) == written
    with TraceWriter(tmp_path / "taken", metadata()):
        for table, number, data in files:
            (tmp_path / "taken" / table).mkdir(exist_ok=True)
            (tmp_path / "taken" / table / f"{number:06}.parquet").write_bytes(data)
    with Trace(tmp_path / "folder") as one, Trace(tmp_path / "taken") as other:
        assert other.warnings == []
        for table in ("packets", "flows"):
            first, second = (trace.columns(f"SELECT * FROM {table} ORDER BY ALL") for trace in (one, other))
            assert len(next(iter(first.values()))) == (1009 if table == "packets" else 23)
            assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_mark_comes_behind_the_files_that_it_is_about() -> None:
    taken = Taken()
    with TraceWriter(taken, metadata()) as writer:
        writer.append("packets", rows("packets", 7))
        writer.append("flows", rows("flows", 7))
        writer.mark(1009)
        writer.append("packets", rows("packets", 7))
    order = [each if isinstance(each, int) else each[:2] for each in taken.given[1:-1]]
    assert order == [("packets", 1), ("flows", 1), 1009, ("packets", 2)]
