# SPDX-License-Identifier: Apache-2.0
"""Tables as Parquet files: rows in, rotated files out, with bounded memory."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
import numpy as np

from hopscope.errors import DiskFullError
from hopscope.store.engine import NO_EXTENSIONS
from hopscope.store.parquet import PAGE_ROWS, IntegerFile
from hopscope.store.schema import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from hopscope.store.destination import Files
    from hopscope.store.schema import Table

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"
# Writes a file of that path, with the engine if it needs it.
Encode: TypeAlias = Callable[[duckdb.DuckDBPyConnection, Path], None]

# Rows of a table that make a file, and how long they wait for more.
FILE_ROWS: Final = 1 << 19
FILE_S: Final = 5.0
# Room that a table's rows begin with.
_LEAST_ROWS: Final = 1024
# Files that may wait for the disk: with the rows that become the next one, what a recording needs of memory.
_WAITING: Final = 2
# The quickest compression is the best buy; version 2 has delta encoding, which times and sequence numbers need.
_FORMAT: Final = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2, USE_TMP_FILE false"


class TableFiles:
    """Writes tables.

    Parameters
    ----------
    files
        Where they go; a folder has a folder for each of them.
    tables
        Those that can be appended to.
    file_rows, file_s
        A table's file is begun after so many rows, or so much time.

    Attributes
    ----------
    bytes_written : int
        Of complete files.
    rows_written : dict of str to int
        Of complete files, by table.
    """

    def __init__(
        self, files: Files, tables: Iterable[Table], *, file_rows: int = FILE_ROWS, file_s: float = FILE_S
    ) -> None:
        self._destination = files
        self.bytes_written = 0
        self._file_rows = file_rows
        self._file_s = file_s
        self._tables = {table.name: _rows(table) for table in tables}
        self.rows_written = dict.fromkeys(self._tables, 0)
        self._engine = duckdb.connect(config=dict(NO_EXTENSIONS, threads=1))
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="hopscope-writer")
        self._pending: deque[tuple[str, int, Future[int]]] = deque()
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

    def mark(self, until_ns: int) -> None:
        """Begin the files of all rows that wait, and let the destination know when they are complete.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        self._begin_all()
        if self._worker:
            self._pending.append(("", 0, self._worker.submit(self._mark, until_ns)))

    def flush(self) -> None:
        """Write what waits, and wait until its files are complete.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        try:
            self._begin_all()
        finally:
            self._collect(0)

    @property
    def closed(self) -> bool:
        """Nothing can be appended any more."""
        return self._worker is None

    def close(self) -> None:
        """Write what waits, and end; again is allowed.

        Raises
        ------
        DiskFullError
            There is no room for what still waited; the files that are there are complete.
        """
        if self._worker is None:
            return
        try:
            self.flush()
        finally:
            self._worker.shutdown()
            self._worker = None
            self._engine.close()

    def _begin(self, rows: _Rows) -> None:
        self._collect(_WAITING - 1)
        count = rows.count
        number, encode = rows.take()
        if self._worker:
            name = rows.table.name
            self._pending.append((name, count, self._worker.submit(self._write, name, number, encode)))

    def _begin_all(self) -> None:
        failed: DiskFullError | None = None
        for rows in self._tables.values():
            while rows.count:
                try:
                    self._begin(rows)
                except DiskFullError as error:  # of a file before, which does not keep these rows from the disk
                    failed = failed or error
        if failed:
            raise failed

    def _collect(self, left: int) -> None:
        """Wait until no more than `left` files wait for the disk."""
        failed: DiskFullError | None = None
        while len(self._pending) > left or (self._pending and self._pending[0][-1].done()):
            table, rows, written = self._pending.popleft()
            try:
                self.bytes_written += written.result()
            except DiskFullError as error:
                failed = failed or error
                continue
            if rows:
                self.rows_written[table] += rows
        if failed:
            raise failed

    def _write(self, table: str, number: int, encode: Encode) -> int:
        """Write one file, and say how large it is. Runs in the worker."""
        return self._destination.write(table, number, partial(encode, self._engine))

    def _mark(self, until_ns: int) -> int:
        self._destination.mark(until_ns)
        return 0


class _Rows(ABC):
    """The rows of a table that wait for their file.

    Attributes
    ----------
    count
        How many wait.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.count = 0
        self._since_s = 0.0
        self._files = 0

    def add(self, columns: Columns) -> None:
        if not self.count:
            self._since_s = time.monotonic()
        self._add(columns)
        self.count += len(columns[self.table.columns[0].name])

    def age_s(self) -> float:
        return time.monotonic() - self._since_s if self.count else 0.0

    def take(self) -> tuple[int, Encode]:
        """Return the number of the file that they become, and what writes it."""
        self._files += 1
        self.count = 0
        return self._files, self._take()

    @abstractmethod
    def _add(self, columns: Columns) -> None: ...

    @abstractmethod
    def _take(self) -> Encode: ...


class _Texts(_Rows):
    """Of a table with texts, which has few rows: the engine writes them."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._parts: list[dict[str, NDArray[Any]]] = []

    def _add(self, columns: Columns) -> None:
        self._parts.append({column.name: np.array(columns[column.name]) for column in self.table.columns})

    def _take(self) -> Encode:
        parts, self._parts = self._parts, []
        types = {column.name: column.dtype for column in self.table.columns}

        def encode(engine: duckdb.DuckDBPyConnection, path: Path) -> None:
            columns = {name: np.concatenate([part[name] for part in parts], dtype=types[name]) for name in types}
            engine.register("columns", columns)
            try:
                # By its descriptor: no character of the path can have a meaning for the engine.
                with path.open("wb") as out:
                    engine.execute(f"COPY (SELECT * FROM columns) TO '/proc/self/fd/{out.fileno()}' ({_FORMAT})")
            finally:
                engine.unregister("columns")

        return encode


class _Integers(_Rows):
    """Of a table of integers, which may have millions: each page of them is encoded as soon as it is full.

    So what waits is short; and what is encoded is still in the CPU's cache.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._types = {column.name: np.dtype(column.dtype) for column in table.columns}
        self._file = IntegerFile(self._types)
        self._page: dict[str, NDArray[Any]] = {}
        self._room = 0
        self._filled = 0

    def _add(self, columns: Columns) -> None:
        count = len(columns[self.table.columns[0].name])
        start = 0
        while start < count:
            if self._filled == self._room:
                self._make_room(count - start)
            end = start + min(count - start, self._room - self._filled)
            until = self._filled + end - start
            for name, column in self._page.items():
                column[self._filled : until] = columns[name][start:end]
            self._filled, start = until, end

    def _take(self) -> Encode:
        self._encode()
        file, self._file = self._file, IntegerFile(self._types)

        def encode(_engine: duckdb.DuckDBPyConnection, path: Path) -> None:
            with path.open("wb") as out:
                file.write(out)

        return encode

    def _encode(self) -> None:
        if self._filled:
            self._file.add({name: column[: self._filled] for name, column in self._page.items()})
        self._filled = 0

    def _make_room(self, rows: int) -> None:
        if self._room == PAGE_ROWS:
            self._encode()
            return
        self._room = min(max(_LEAST_ROWS, 1 << (self._filled + rows - 1).bit_length()), PAGE_ROWS)
        fresh = {name: np.empty(self._room, dtype) for name, dtype in self._types.items()}
        for name, column in self._page.items():
            fresh[name][: self._filled] = column[: self._filled]
        self._page = fresh


def _rows(table: Table) -> _Rows:
    return _Texts(table) if any(column.dtype == TEXT for column in table.columns) else _Integers(table)
