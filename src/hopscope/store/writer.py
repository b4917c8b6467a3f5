# SPDX-License-Identifier: Apache-2.0
"""Write a trace while it is being recorded: columns in, rotated Parquet files out, and what it says of itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from hopscope.errors import DiskFullError
from hopscope.store.destination import Destination, Folder
from hopscope.store.schema import TABLES
from hopscope.store.tables import FILE_ROWS, FILE_S, TableFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from hopscope.store.folder import OpenFolder
    from hopscope.store.meta import Metadata, State
    from hopscope.store.tables import Columns


class TraceWriter:
    """Writes one trace; a context manager that completes it.

    Parameters
    ----------
    destination
        A folder, made or empty, or one that is open, or another destination.
    metadata
        Written at once, and again at the end. What it has of ``tables`` can be appended to, too.
    file_rows, file_s
        A table's file is begun after so many rows, or so much time.

    Raises
    ------
    UsageError
        The folder has something in it, or cannot be made.
    DiskFullError
        There is no room.
    """

    def __init__(
        self,
        destination: Path | OpenFolder | Destination,
        metadata: Metadata,
        *,
        file_rows: int = FILE_ROWS,
        file_s: float = FILE_S,
    ) -> None:
        self._destination = destination if isinstance(destination, Destination) else Folder(destination)
        self.metadata = metadata
        self._destination.begin(metadata)
        tables = (*TABLES, *metadata.tables)
        self._files = TableFiles(self._destination, tables, file_rows=file_rows, file_s=file_s)

    @property
    def bytes_written(self) -> int:
        """Of complete files."""
        return self._files.bytes_written

    @property
    def rows_written(self) -> Mapping[str, int]:
        """Of complete files, by table."""
        return self._files.rows_written

    def append(self, table: str, columns: Columns) -> None:
        """Add rows: the columns of the table as the schema has them, of one length. They are copied.

        Waits where the disk is slower than the rows come.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        self._files.append(table, columns)

    def rotate(self) -> None:
        """Begin the files of tables whose rows have waited long enough, whether more come or not.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        self._files.rotate()

    def mark(self, until_ns: int) -> None:
        """Begin the files of all rows that wait, and let the destination know when they are complete.

        Parameters
        ----------
        until_ns
            All events before that time have been appended.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        self._files.mark(until_ns)

    def flush(self) -> None:
        """Write what waits, and wait until its files are complete.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        self._files.flush()

    def close(self, state: State = "complete", ended_ns: int | None = None) -> None:
        """Complete the trace; again is allowed.

        Raises
        ------
        DiskFullError
            There is no room for what still waited; the files that are there are complete.
        """
        if self._files.closed:
            return
        try:
            self._files.close()
        except DiskFullError:
            state = "stopped: the disk is full"
            raise
        finally:
            self.metadata.state = state
            self.metadata.ended_ns = ended_ns or time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self._destination.end(self.metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close("stopped: the disk is full" if isinstance(error, DiskFullError) else "complete")
