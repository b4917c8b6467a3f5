# SPDX-License-Identifier: Apache-2.0
"""Where a trace goes while it is recorded: into a folder, or as whole files in memory to whoever takes them on.

A file is written under a name that readers overlook and gets its own when it is complete, so that whatever kills the
recorder costs at most what was not in a complete file yet.
"""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import duckdb

from hopscope.errors import DiskFullError, UsageError
from hopscope.store import checksums
from hopscope.store.capture import FILE as CAPTURE_FILE
from hopscope.store.lock import FolderLock
from hopscope.store.meta import FILE

if TYPE_CHECKING:
    from hopscope.store.meta import Metadata

# Writes a file of that path.
Write: TypeAlias = Callable[[Path], None]

# Kept free, so that even on a full disk the trace can say how it ended.
_RESERVE_BYTES: Final = 1 << 16
_CAUSES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOENT)


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
    path
        Which is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, table: str, number: int, write: Write) -> int:
        """Write a file; it has its name when it is complete."""
        path = self.path / table / f"{number:06}.parquet"
        partial = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(exist_ok=True)
            write(partial)
            checksum = checksums.digest_of(partial)
            partial.rename(path)
            checksums.append(self.path, path, checksum)
        except (duckdb.IOException, OSError) as error:
            partial.unlink(missing_ok=True)
            raise unwritable(path, error) from error
        return path.stat().st_size

    def mark(self, until_ns: int) -> None:
        """Nobody asks: the files are there."""


class Folder(TableFolder, Destination):
    """A folder for a trace, locked from its beginning to its end.

    Parameters
    ----------
    path
        Made, or empty.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._reserve = path / ".reserve"
        self._lock: FolderLock | None = None

    def begin(self, metadata: Metadata) -> None:
        """Make the folder, and write its metadata."""
        make_folder(self.path)
        self._lock = FolderLock(self.path)
        try:
            self._write_metadata(metadata, _RESERVE_BYTES)
        except DiskFullError:
            self._lock.release()
            raise

    def capture(self) -> BinaryIO:
        """Open the file for them."""
        path = self.path / CAPTURE_FILE
        try:
            return checksums.Summed(self.path, path)
        except OSError as error:
            raise unwritable(path, error) from error

    def end(self, metadata: Metadata) -> None:
        """Write its metadata once more."""
        try:
            self._write_metadata(metadata)
        finally:
            if self._lock:
                self._lock.release()

    def _write_metadata(self, metadata: Metadata, reserve_bytes: int = 0) -> None:
        try:
            self._reserve.unlink(missing_ok=True)
            metadata.write(self.path)
            if reserve_bytes:
                self._reserve.write_bytes(bytes(reserve_bytes))
        except OSError as error:
            self._reserve.unlink(missing_ok=True)
            raise unwritable(self.path / FILE, error) from error


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


def unwritable(path: Path, error: Exception) -> DiskFullError:
    """Return what to raise when a part of a recording cannot be written."""
    return DiskFullError(
        f"{path} cannot be written: {_cause(error)}",
        "Free some space; what was recorded before can be read",
    )


def make_folder(folder: Path) -> None:
    """Make a folder for a recording.

    Raises
    ------
    UsageError
        It has something in it, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}", "Give another folder with -o") from error
    if taken:
        raise UsageError(f"{folder} is not empty", "Name a new folder with -o")


def _cause(error: Exception) -> str:
    """Say what the kernel said, rather than what the engine makes of it."""
    words = str(error)
    code = error.errno if isinstance(error, OSError) else next((c for c in _CAUSES if os.strerror(c) in words), None)
    return os.strerror(code) if code else words.strip().splitlines()[-1]
