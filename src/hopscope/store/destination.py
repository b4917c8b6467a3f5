# SPDX-License-Identifier: Apache-2.0
"""Where a trace goes while it is recorded: into a folder, or as whole files in memory to whoever takes them on.

A file is written under a name that readers overlook and gets its own when it is complete, so that whatever kills the
recorder costs at most what was not in a complete file yet.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import duckdb

from hopscope.store import checksums
from hopscope.store.capture import FILE as CAPTURE_FILE
from hopscope.store.folder import open_folder
from hopscope.store.lock import FolderLock
from hopscope.store.meta import FILE
from hopscope.store.unwritable import unwritable

if TYPE_CHECKING:
    from hopscope.store.folder import OpenFolder, Write
    from hopscope.store.meta import Metadata

# Kept free, so that even on a full disk the trace can say how it ended.
_RESERVE_BYTES: Final = 1 << 16
# Descriptors that are kept for the same, where no more files may be opened.
_SPARE: Final = 4
_RESERVE: Final = ".reserve"


class Files(ABC):
    """Takes the files of tables, from one thread at a time."""

    @abstractmethod
    def write(self, table: str, number: int, write: Write) -> int:
        """Take a file of a table, and say how large it is.

        Raises
        ------
        DiskFullError
            There is no room.
        """

    @abstractmethod
    def mark(self, until_ns: int) -> None:
        """Take note that all events before this time have been given."""


class Destination(Files):
    """Takes a trace."""

    @abstractmethod
    def begin(self, metadata: Metadata) -> None:
        """Take what the trace says of itself at its start.

        Raises
        ------
        UsageError
            It cannot be put there.
        DiskFullError
            There is no room.
        """

    @abstractmethod
    def capture(self) -> BinaryIO:
        """Return a file for captured bytes, for who asks to close.

        Raises
        ------
        DiskFullError
            There is no room.
        """

    @abstractmethod
    def end(self, metadata: Metadata) -> None:
        """Take what the trace says of itself at its end.

        Raises
        ------
        DiskFullError
            There is no room.
        """


class TableFolder(Files):
    """A folder that has a folder of files for each table.

    Parameters
    ----------
    folder
        Which is open, and stays so.
    """

    def __init__(self, folder: OpenFolder) -> None:
        self._place = folder
        self._tables: dict[str, OpenFolder] = {}

    def write(self, table: str, number: int, write: Write) -> int:
        """Write a file; it has its name when it is complete."""
        name = f"{number:06}.parquet"
        try:
            if table not in self._tables:
                self._tables[table] = self._place.folder(table)
            found: list[str] = []

            def write_summed(path: Path) -> None:
                write(path)
                found.append(checksums.digest_of_own(path))

            size_bytes = self._tables[table].put(name, write_summed)
            checksums.append(self._place, f"{table}/{name}", found[0])
        except (duckdb.IOException, OSError) as error:
            raise unwritable(self._place, f"{table}/{name}", error) from error
        return size_bytes

    def mark(self, until_ns: int) -> None:
        """Nobody asks: the files are there."""

    def close(self) -> None:
        """Close the tables' folders; again is allowed."""
        while self._tables:
            self._tables.popitem()[1].close()


class Folder(Destination):
    """A folder for a trace, locked from its beginning to its end.

    Parameters
    ----------
    folder
        Made, or empty; or open, and then it stays so.
    """

    def __init__(self, folder: Path | OpenFolder) -> None:
        self._folder = folder
        self._opened = contextlib.ExitStack()

    def begin(self, metadata: Metadata) -> None:
        """Make the folder, and write its metadata."""
        with contextlib.ExitStack() as stack:
            self._place = open_folder(self._folder)
            if self._place is not self._folder:
                stack.callback(self._place.close)
            self._spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE)]
            stack.callback(self._release_spare)
            self._tables = TableFolder(self._place)
            stack.callback(self._tables.close)
            stack.callback(FolderLock(self._place).release)
            self._write_metadata(metadata, _RESERVE_BYTES)
            self._opened = stack.pop_all()

    def write(self, table: str, number: int, write: Write) -> int:
        """Write a file; it has its name when it is complete."""
        return self._tables.write(table, number, write)

    def mark(self, until_ns: int) -> None:
        """Nobody asks: the files are there."""

    def capture(self) -> BinaryIO:
        """Open the file for them."""
        try:
            return checksums.Summed(self._place, CAPTURE_FILE)
        except OSError as error:
            raise unwritable(self._place, CAPTURE_FILE, error) from error

    def end(self, metadata: Metadata) -> None:
        """Write its metadata once more."""
        with self._opened:
            self._release_spare()
            self._write_metadata(metadata)

    def _release_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop())

    def _write_metadata(self, metadata: Metadata, reserve_bytes: int = 0) -> None:
        packed = metadata.packed()
        try:
            self._place.remove(_RESERVE)
            put_bytes(self._place, FILE, packed, sync=True)
            if reserve_bytes:
                put_bytes(self._place, _RESERVE, bytes(reserve_bytes))
        except OSError as error:
            self._place.remove(_RESERVE)
            raise unwritable(self._place, FILE, error) from error


def put_bytes(folder: OpenFolder, name: str, data: bytes | memoryview, *, sync: bool = False) -> None:
    """Write a file, in one step.

    Raises
    ------
    OSError
        There is no room.
    """

    def write(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            write_all(file, memoryview(data))

    folder.put(name, write, sync=sync)


def write_all(file: BinaryIO, data: memoryview) -> None:
    """Write to a file without a buffer, which may take a part at a time.

    Raises
    ------
    OSError
        There is no room.
    """
    while data:
        data = data[file.write(data) :]


class Memory(Destination):
    """Files that are encoded in memory, one at a time, and handed on; what is done with them is an heir's business."""

    def write(self, table: str, number: int, write: Write) -> int:
        """Encode a file, and hand it on."""
        encoded_fd = os.memfd_create(f"{table}-{number}")
        try:
            write(Path(f"/proc/self/fd/{encoded_fd}"))
            size_bytes = os.fstat(encoded_fd).st_size
            with mmap.mmap(encoded_fd, size_bytes, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as data:
                self.hand_on(table, number, data)
        finally:
            os.close(encoded_fd)
        return size_bytes

    @abstractmethod
    def hand_on(self, table: str, number: int, data: memoryview) -> None:
        """Take a complete file; its bytes are gone afterwards."""
