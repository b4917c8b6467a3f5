# SPDX-License-Identifier: Apache-2.0
"""Write a trace while it is being recorded: columns in, rotated Parquet files out, with bounded memory.

A file is written under a name that readers overlook and gets its own when it is complete, so that whatever kills the
recorder costs at most what was not in a complete file yet.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import duckdb
import numpy as np

from hopscope.errors import DiskFullError, UsageError
from hopscope.store.meta import FILE
from hopscope.store.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.store.meta import Metadata, State
    from hopscope.store.schema import Table

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

# Rows of a table that make a file, and how long they wait for more.
FILE_ROWS: Final = 1 << 19
FILE_S: Final = 5.0
# Kept free, so that even on a full disk the trace can say how it ended.
_RESERVE_BYTES: Final = 1 << 16
# Room that a table's rows begin with.
_LEAST_ROWS: Final = 1024
_CAUSES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOENT)
# Files that may wait for the disk: with the rows that become the next one, what a recording needs of memory.
_WAITING: Final = 2
# The quickest compression is the best buy; version 2 has delta encoding, which times and sequence numbers need.
_FORMAT: Final = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2"


class TraceWriter:
    """Writes one trace; a context manager that completes it.

    Parameters
    ----------
    folder
        Made, or empty.
    metadata
        Written at once, and again at the end. What it has of ``tables`` can be appended to, too.
    file_rows, file_s
        A table's file is begun after so many rows, or so much time.

    Attributes
    ----------
    bytes_written : int
        Of complete files.

    Raises
    ------
    UsageError
        The folder has something in it, or cannot be made.
    DiskFullError
        There is no room.
    """

    def __init__(self, folder: Path, metadata: Metadata, *, file_rows: int = FILE_ROWS, file_s: float = FILE_S) -> None:
        _make(folder)
        self.folder = folder
        self._reserve = folder / ".reserve"
        self.metadata = metadata
        self._write_metadata(_RESERVE_BYTES)
        self.bytes_written = 0
        self._file_rows = file_rows
        self._file_s = file_s
        self._tables = {table.name: _Rows(table) for table in (*TABLES, *metadata.tables)}
        self._engine = duckdb.connect(config={"threads": 1})
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="hopscope-writer")
        self._pending: deque[Future[int]] = deque()
        # The thread begins now, and not when there is something to write: its caller may want to give it a priority.
        self._worker.submit(int).result()

    def append(self, table: str, columns: Columns) -> None:
        """Add rows: the columns of the table as the schema has them, of one length. They are copied.

        Waits where the disk is slower than the rows come.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        rows = self._tables[table]
        rows.add(columns)
        if rows.count >= self._file_rows or rows.age_s() >= self._file_s:
            self._begin(rows)

    def rotate(self) -> None:
        """Begin the files of tables whose rows have waited long enough, whether more come or not.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        for rows in self._tables.values():
            if rows.age_s() >= self._file_s:
                self._begin(rows)

    def flush(self) -> None:
        """Write what waits, and wait until its files are complete.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        for rows in self._tables.values():
            if rows.count:
                self._begin(rows)
        self._collect(0)

    def close(self, state: State = "complete", ended_ns: int | None = None) -> None:
        """Complete the trace; again is allowed.

        Raises
        ------
        DiskFullError
            There is no room for what still waited; the files that are there are complete.
        """
        if self._worker is None:
            return
        try:
            self.flush()
        except DiskFullError:
            state = "stopped: the disk is full"
            raise
        finally:
            self._worker.shutdown()
            self._worker = None
            self._engine.close()
            self.metadata.state = state
            self.metadata.ended_ns = ended_ns or time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self._write_metadata()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close("stopped: the disk is full" if isinstance(error, DiskFullError) else "complete")

    def _write_metadata(self, reserve_bytes: int = 0) -> None:
        try:
            self._reserve.unlink(missing_ok=True)
            self.metadata.write(self.folder)
            if reserve_bytes:
                self._reserve.write_bytes(bytes(reserve_bytes))
        except OSError as error:
            self._reserve.unlink(missing_ok=True)
            raise _unwritable(self.folder / FILE, error) from error

    def _begin(self, rows: _Rows) -> None:
        self._collect(_WAITING - 1)
        number, count, buffer = rows.take()
        path = self.folder / rows.table.name / f"{number:06}.parquet"
        if self._worker:
            self._pending.append(self._worker.submit(self._write, rows, path, count, buffer))

    def _collect(self, left: int) -> None:
        """Wait until no more than `left` files wait for the disk."""
        while len(self._pending) > left or (self._pending and self._pending[0].done()):
            self.bytes_written += self._pending.popleft().result()

    def _write(self, rows: _Rows, path: Path, count: int, buffer: Columns) -> int:
        """Write one file, and say how large it is. Runs in the worker."""
        partial = path.with_name(f".{path.name}.partial")
        self._engine.register("columns", {name: column[:count] for name, column in buffer.items()})
        try:
            path.parent.mkdir(exist_ok=True)
            self._engine.execute(f"COPY (SELECT * FROM columns) TO '{_quoted(partial)}' ({_FORMAT})")
            partial.rename(path)
        except (duckdb.IOException, OSError) as error:
            partial.unlink(missing_ok=True)
            raise _unwritable(path, error) from error
        finally:
            self._engine.unregister("columns")
        rows.spare.append(buffer)
        return path.stat().st_size


class _Rows:
    """The rows of a table that wait for their file, in columns that grow.

    Attributes
    ----------
    count
        How many wait.
    spare
        Columns of files that are written: memory that was used before is quicker than fresh one.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.count = 0
        self.spare: list[Columns] = []
        self._columns: dict[str, NDArray[Any]] = {}
        self._room = 0
        self._since_s = 0.0
        self._files = 0

    def add(self, columns: Columns) -> None:
        added = len(columns[self.table.columns[0].name])
        if not self.count:
            self._since_s = time.monotonic()
            self._use(self.spare.pop() if self.spare else {})
        if self.count + added > self._room:
            self._grow(self.count + added)
        for name, column in self._columns.items():
            column[self.count : self.count + added] = columns[name]
        self.count += added

    def age_s(self) -> float:
        return time.monotonic() - self._since_s if self.count else 0.0

    def take(self) -> tuple[int, int, Columns]:
        """Return the number of the file that they become, and the rows, which are the first so many of the columns."""
        self._files += 1
        taken = self._files, self.count, self._columns
        self.count = 0
        self._use({})
        return taken

    def _use(self, columns: Columns) -> None:
        self._columns = dict(columns)
        self._room = len(columns[self.table.columns[0].name]) if columns else 0

    def _grow(self, rows: int) -> None:
        room = max(_LEAST_ROWS, 1 << (rows - 1).bit_length())
        fresh = {column.name: np.empty(room, column.dtype) for column in self.table.columns}
        for name, column in self._columns.items():
            fresh[name][: self.count] = column[: self.count]
        self._use(fresh)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", "Give another folder with -o") from error
    if taken:
        raise UsageError(f"{folder} is not empty", "Give a new folder with -o")


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _unwritable(path: Path, error: Exception) -> DiskFullError:
    return DiskFullError(
        f"{path} cannot be written: {_cause(error)}",
        "Make room; what was recorded up to there can be read",
    )


def _cause(error: Exception) -> str:
    """Say what the kernel said, rather than what the engine makes of it."""
    words = str(error)
    code = error.errno if isinstance(error, OSError) else next((c for c in _CAUSES if os.strerror(c) in words), None)
    return os.strerror(code) if code else words.strip().splitlines()[-1]
