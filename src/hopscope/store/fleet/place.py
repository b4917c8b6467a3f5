# SPDX-License-Identifier: Apache-2.0
"""Where a fleet's batches are: the one seam through which all files of ``hist`` are made, listed, read and removed.

A batch is a folder that comes to be and goes away at once::

    FLEET/hist/day=2026-11-26/v1-13-part-0123456789abcdef/{hop_minutes,hop_hours,minutes,drops,facts}.parquet
                                                          written.json

It is written under a name that readers overlook, with a lock that ends with its writer; all of its files are on the
disk before it is renamed. ``written.json`` comes last, also by its name: where there is no renaming, as in object
storage, or where somebody copies the folder, it is no batch without that file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hopscope.errors import HopscopeError, UsageError
from hopscope.store.fleet.raw import HOUR_NS, RAW, Raw, hour_ns
from hopscope.store.fleet.schema import HOURS_OF_DAY, VERSION
from hopscope.store.lock import is_locked
from hopscope.store.unwritable import unwritable_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HIST: Final = "hist"
DOCUMENT: Final = "written.json"
SUFFIX: Final = ".parquet"
_DAY: Final = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_NAME: Final = re.compile(r"v(\d+)-(\d{2})-(part|pack)-([0-9a-f]{16})")
_COMING: Final = ".coming-"
_GOING: Final = ".going-"
_LOCK: Final = ".lock"
_FIRST_DAY: Final = date(1970, 1, 1)
# A writer needs less from making its folder to locking it.
_LEFT_S: Final = 60.0

Kind: TypeAlias = Literal["part", "pack"]


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """What a batch is called.

    Attributes
    ----------
    day
        As ``2026-11-26``, UTC.
    hour
        Of that day, in which all of its rows are.
    kind
        ``part``: as its host wrote it. ``pack``: made of several.
    id
        16 hexadecimal digits, which follow from what is in it: the same rows twice are one batch.
    version
        Of the layout.
    """

    day: str
    hour: int
    kind: Kind
    id: str
    version: int = VERSION

    @property
    def path(self) -> str:
        """Of its folder, below ``hist``."""
        return f"day={self.day}/v{self.version}-{self.hour:02}-{self.kind}-{self.id}"

    @property
    def number(self) -> int:
        """Of the hour, since 1970."""
        return (date.fromisoformat(self.day) - _FIRST_DAY).days * HOURS_OF_DAY + self.hour


def parsed_name(path: str) -> Name | None:
    """Return the name of a batch that has this path; None: it is none's."""
    day, _, entry = path.partition("/")
    of_day, parsed = _DAY.fullmatch(day), _NAME.fullmatch(entry)
    if not of_day or not parsed:
        return None
    version, hour, kind, identity = parsed.groups()
    return Name(of_day[1], int(hour), "part" if kind == "part" else "pack", identity, int(version))


def name_of(hour: int, kind: Kind, identity: str) -> Name:
    """Return the name of a batch of an hour since 1970."""
    day = _FIRST_DAY + timedelta(days=hour // HOURS_OF_DAY)
    return Name(day.isoformat(), hour % HOURS_OF_DAY, kind, identity)


class Place:
    """The directory of a fleet on a file system.

    Parameters
    ----------
    folder
        Of the fleet; of what is elsewhere, one into which it is fetched.
    shown
        What people call it; empty: as the folder.
    """

    LABELS: Final = "hosts.csv"

    def __init__(self, folder: Path, shown: str = "") -> None:
        self.folder = folder
        self.shown = shown or str(folder)
        self._hist = folder / HIST

    def exists(self) -> bool:
        """Tell whether it is a fleet's directory."""
        return self._hist.is_dir()

    def names(self, only: str | None = None) -> tuple[list[Name], list[str]]:
        """Return the batches that are there, of any version, in order, and the paths of what is no batch.

        `only`: of this day.

        Raises
        ------
        UsageError
            The directory cannot be read.
        """
        found: list[Name] = []
        foreign: list[str] = []
        for day in self._days() if only is None else [only]:
            for entry in _entries(self._hist / f"day={day}"):
                if entry.startswith("."):
                    continue
                if name := parsed_name(f"day={day}/{entry}"):
                    found.append(name)
                else:
                    foreign.append(f"{HIST}/day={day}/{entry}")
        return sorted(found), foreign

    def is_whole(self, name: Name) -> bool:
        """Tell whether all of a batch is there; where somebody copies it, there may be a part."""
        return (self._hist / name.path / DOCUMENT).exists()

    def tables(self, name: Name) -> set[str]:
        """Return the tables that a batch has."""
        return {each.removesuffix(SUFFIX) for each in _entries(self._hist / name.path) if each.endswith(SUFFIX)}

    def file(self, name: Name, table: str) -> Path:
        """Return the file of a table of a batch, for the engine to read."""
        return self._hist / name.path / f"{table}{SUFFIX}"

    def document(self, name: Name) -> bytes:
        """Return what a batch says of itself.

        Raises
        ------
        OSError
            It is not there, or cannot be read.
        """
        return (self._hist / name.path / DOCUMENT).read_bytes()

    def labels(self) -> str | None:
        """Return the text of ``hosts.csv``; None: there is none.

        Raises
        ------
        OSError
            It cannot be read.
        UnicodeDecodeError
            It is no text.
        """
        try:
            return (self.folder / self.LABELS).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def size_bytes(self, name: Name) -> int:
        """Return the size of a batch's files."""
        folder = self._hist / name.path
        return sum((folder / each).stat().st_size for each in _entries(folder))

    def age_s(self, name: Name) -> float:
        """Return how long ago a batch came to be."""
        return time.time() - (self._hist / name.path).stat().st_mtime

    def add(self, name: Name, write: Callable[[Path], bytes]) -> bool:
        """Have a batch written, which is there whole afterwards, or not at all.

        Parameters
        ----------
        name
            Of it.
        write
            Writes its tables into a folder, and returns its document.

        Returns
        -------
        bool
            False: there was one of that name, which stays.

        Raises
        ------
        DiskFullError
            It cannot be written.
        """
        folder = self._hist / name.path
        if folder.exists():
            return False
        coming = folder.parent / f"{_COMING}{name.hour:02}-{name.id}-{secrets.token_hex(4)}"
        try:
            coming.mkdir(parents=True)
            with _locked(coming):
                (coming / DOCUMENT).write_bytes(write(coming))
                for each in _entries(coming):
                    _sync(coming / each)
                _sync(coming)
                coming.rename(folder)
                for parent in (folder.parent, self._hist, self.folder):
                    _sync(parent)
        except OSError as error:
            shutil.rmtree(coming, ignore_errors=True)
            if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
                return False
            raise unwritable_file(folder, error) from error
        except BaseException:
            shutil.rmtree(coming, ignore_errors=True)
            raise
        return True

    def recordings(self) -> list[tuple[int, Path]]:
        """Return the hour since 1970, and the folder, of each recording in ``raw``, the oldest first."""
        if not (self.folder / RAW).is_dir():
            return []
        leaves, _ = Raw(self.folder).leaves()
        return sorted((hour_ns(leaf.hour) // HOUR_NS, leaf.folder) for leaf in leaves)

    def remove(self, name: Name) -> None:
        """Remove a batch, at once for readers that have not begun.

        Raises
        ------
        HopscopeError
            It cannot be removed.
        """
        self.remove_folder(self._hist / name.path)

    @staticmethod
    def remove_folder(folder: Path) -> None:
        """Remove a folder, as :meth:`remove` does, and those that it was alone in, up to two."""
        going = folder.parent / f"{_GOING}{secrets.token_hex(4)}"
        try:
            folder.rename(going)
            shutil.rmtree(going)
        except FileNotFoundError:  # somebody else did
            return
        except OSError as error:
            raise HopscopeError(
                f"{folder} cannot be removed: {error.strerror}", "Run it as the owner of the directory"
            ) from error
        with contextlib.suppress(OSError):  # there is more in them
            for each in list(folder.parents)[:2]:
                each.rmdir()

    def sweep(self) -> int:
        """Remove what writers left that were killed; return how much there was."""
        swept = 0
        for day in self._days():
            for entry in _entries(self._hist / f"day={day}"):
                path = self._hist / f"day={day}" / entry
                if entry.startswith(_GOING) or (entry.startswith(_COMING) and _is_left(path)):
                    shutil.rmtree(path, ignore_errors=True)
                    swept += 1
        for path in self.folder.glob(f"raw/host=*/boot=*/{_GOING}*"):
            shutil.rmtree(path, ignore_errors=True)
            swept += 1
        return swept

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from packing and removing batches meanwhile.

        Raises
        ------
        UsageError
            Another process does so, or the directory is not there.
        """
        try:
            lock_fd = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"{self.folder} cannot be changed: {error.strerror}", "Give a fleet directory of your own"
            ) from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock_fd)
            raise UsageError(
                f"{self.folder} is being compacted by another process", "Wait until it has ended"
            ) from error
        try:
            yield
        finally:
            os.close(lock_fd)

    def _days(self) -> list[str]:
        try:
            found = os.listdir(self._hist)  # noqa: PTH208 # names alone
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(
                f"{self._hist} cannot be read: {error.strerror}", "Give a fleet directory that you can read"
            ) from error
        return sorted(parsed[1] for each in found if (parsed := _DAY.fullmatch(each)))


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 # names alone
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_left(coming: Path) -> bool:
    """Tell whether nobody writes into this folder any more."""
    with contextlib.suppress(OSError):
        return time.time() - coming.stat().st_mtime > _LEFT_S and not is_locked(coming)
    return False


def _sync(path: Path) -> None:
    found_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(found_fd)
    finally:
        os.close(found_fd)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, as far as the file system has locks."""
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(folder_fd)
