# SPDX-License-Identifier: Apache-2.0
"""A recording of several hosts: a folder with a trace of each, and one file that says how they belong together.

::

    DIR/hosts.json     which hosts, in which folders, when one was missing, and which pairs probed each other
    DIR/a/, DIR/b/     a trace each; DIR/a.2/ is of the same host, after it was lost and found again
    DIR/probes/        Parquet files: what both sides of each pair stamped
    DIR/changes/       the same, when somebody changed how one of their clocks runs
    DIR/joined/        all of it as one trace; made from the rest, can be removed
"""

from __future__ import annotations

import contextlib
import re
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope import __version__
from hopscope.errors import DiskFullError, FormatError, UsageError
from hopscope.store.declared import read_as
from hopscope.store.destination import TableFolder, put_bytes
from hopscope.store.document import packed, read_document
from hopscope.store.folder import OpenFolder, open_folder
from hopscope.store.lock import FolderLock
from hopscope.store.meta import State  # noqa: TC001 # read_as() looks it up
from hopscope.store.schema import Column, Table
from hopscope.store.tables import TableFiles
from hopscope.store.unwritable import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from hopscope.store.tables import Columns

FILE: Final = "hosts.json"
JOINED: Final = "joined"
# A joined trace numbers them in the upper bits of CPUs, which are 16 bits wide.
MOST_HOSTS: Final = 32
PROBES: Final = Table(
    "probes",
    "a packet that both hosts of a pair stamped",
    (
        Column("pair", np.int16, "number of the pair in hosts.json"),
        Column("way", np.int8, "0: from the first of the two to the second; 1: back"),
        Column("sent_ns", np.int64, "when, CLOCK_MONOTONIC of the one that sent it"),
        Column("received_ns", np.int64, "when, CLOCK_MONOTONIC of the other one"),
        Column("bound_ns", np.int64, "the difference of both may be off by so much because of how they were taken"),
        Column("by_nics", np.int8, "who took both: 1: the hosts' NICs; 0: their kernels; -1: unknown", nullable=True),
    ),
)
CHANGES: Final = Table(
    "changes",
    "somebody, such as a time daemon, changed how a clock of a pair runs",
    (
        Column("pair", np.int16, "number of the pair in hosts.json"),
        Column("side", np.int8, "0: the first of the two hosts; 1: the second"),
        Column("from_ns", np.int64, "not before, CLOCK_MONOTONIC of that host"),
        Column("until_ns", np.int64, "not after"),
        Column("rate_ppt", np.int64, "it runs faster since, in ns per 1000 s; 2**63 - 1: nobody knows by how much"),
        Column("step_ns", np.int64, "its CLOCK_REALTIME was set forward by so much"),
    ),
)
UNKNOWN_RATE: Final = (1 << 63) - 1
THERE: Final = 0
BACK: Final = 1

FORMAT: Final = "hopscope recording of several hosts"
_VERSION: Final = 1
_TAKEN: Final = frozenset({JOINED, PROBES.name, CHANGES.name})
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Absence:
    """A while in which nothing came from a host: the n-th of a host is after its n-th part.

    Attributes
    ----------
    from_ns
        Until then all is recorded, CLOCK_MONOTONIC of the host.
    until_ns
        When its next part begins, by the same clock, of the boot that it has then; None: it did not come back.
    reason
        One sentence.
    """

    from_ns: int
    until_ns: int | None
    reason: str


@dataclass(slots=True)
class RecordedHost:
    """One of the hosts.

    Attributes
    ----------
    name
        Unique; its parts' folders begin with it.
    target
        How it was reached.
    parts
        Folders with a trace each, in order.
    absences
        In order.
    """

    name: str
    target: str = ""
    parts: list[str] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two hosts that probed each other.

    Attributes
    ----------
    hosts
        Their numbers: places in the list of hosts.
    parts
        Which part of each was being recorded then, counted from 0: after a boot the clock is another.
    """

    hosts: tuple[int, int]
    parts: tuple[int, int]


@dataclass(slots=True)
class Hosts:
    """What hosts.json says."""

    hosts: list[RecordedHost]
    pairs: list[Pair] = field(default_factory=list)
    hopscope: str = __version__
    state: State = "recording"

    def write(self, folder: OpenFolder) -> None:
        """Write the file, in one step.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        document = {"format": FORMAT, "version": _VERSION, **asdict(self)}
        for host in document["hosts"]:
            host["parts"] = [{"folder": part} for part in host["parts"]]
        try:
            put_bytes(folder, FILE, packed(document), sync=True)
        except OSError as error:
            raise unwritable(folder, FILE, error) from error

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the file, and check all it says: no folder that it names is outside of this one.

        Raises
        ------
        FormatError
            There is none, or it is damaged, or of a version that this hopscope cannot read.
        """
        none = FormatError(
            f"{folder} is not a recording of several hosts: it has no {FILE}", "`hopscope record --host` makes one"
        )
        found = read_document(folder / FILE, FORMAT, _VERSION, cls._of, none=none)
        for name in (*(part for host in found.hosts for part in host.parts), JOINED):
            if (folder / name).is_symlink():
                raise FormatError(f"{folder / name} is a symbolic link", "Restore the recording from a backup")
        return found

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Self:
        file = read_as(_File, document)
        hosts = [_host(each) for each in file.hosts]
        for pair in file.pairs:
            _check_pair(pair, hosts)
        try:
            check_names([host.name for host in hosts])
        except UsageError as error:
            raise ValueError(error.what) from error
        return cls(hosts, file.pairs, file.hopscope, file.state)


def is_of_hosts(folder: Path) -> bool:
    """Tell whether a folder contains a recording of several hosts. If it cannot be read, opening it says why."""
    with contextlib.suppress(OSError):
        return (folder / FILE).is_file()
    return False


def check_names(names: Iterable[str]) -> None:
    """Refuse names that cannot be folders side by side.

    Raises
    ------
    UsageError
        One is none, or used twice; or there are too many.
    """
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise UsageError(
                f"'{name}' cannot be a host's name", "Give another with name=: letters, digits, '.', '_' and '-'"
            )
        if name in seen:
            raise UsageError(f"Two hosts are called {name}", "Give one of them another name with name=")
        seen.add(name)
    if len(seen) > MOST_HOSTS:
        raise UsageError(f"{len(seen)} hosts are too many", f"At most {MOST_HOSTS} can be joined")


class HostsWriter:
    """Writes what is beside the hosts' own traces; from any thread. A context manager that completes it.

    The folder is locked until then.

    Parameters
    ----------
    folder
        Made, or empty; or open, and then it stays so.
    hosts
        Name and target of each.

    Raises
    ------
    UsageError
        The folder has something in it, or cannot be made; or a name cannot be one.
    DiskFullError
        There is no room.
    """

    def __init__(self, folder: Path | OpenFolder, hosts: Iterable[tuple[str, str]]) -> None:
        self._hosts = Hosts([RecordedHost(name, target) for name, target in hosts])
        self._places = {host.name: place for place, host in enumerate(self._hosts.hosts)}
        check_names([host.name for host in self._hosts.hosts])
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:
            self.folder = open_folder(folder)
            if self.folder is not folder:
                stack.callback(self.folder.close)
            stack.callback(FolderLock(self.folder).release)
            self._hosts.write(self.folder)
            tables = TableFolder(self.folder)
            stack.callback(tables.close)
            self._files = TableFiles(tables, (PROBES, CHANGES))
            self._opened = stack.pop_all()

    def part(self, name: str) -> OpenFolder:
        """Begin another part of a host: return the folder for its trace, which is closed with this one.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        with self._lock:
            host = self._hosts.hosts[self._places[name]]
            # A host may be called as another one's second part would be.
            taken = set(self._places) - {name} | {part for each in self._hosts.hosts for part in each.parts}
            number = len(host.parts) + 1
            folder = name if number == 1 else f"{name}.{number}"
            while folder in taken:
                number += 1
                folder = f"{name}.{number}"
            host.parts.append(folder)
            self._hosts.write(self.folder)
            try:
                made = self.folder.folder(folder)
            except OSError as error:
                raise unwritable(self.folder, folder, error) from error
            self._opened.callback(made.close)
            return made

    def absent(self, name: str, from_ns: int, until_ns: int | None, reason: str) -> None:
        """Say that nothing came from a host after its last part; again to say until when, or why.

        Parameters
        ----------
        name, from_ns, until_ns, reason
            As in :class:`Absence`. When `until_ns` is given, the next part follows.
        """
        with self._lock:
            host = self._hosts.hosts[self._places[name]]
            del host.absences[max(len(host.parts) - 1, 0) :]
            host.absences.append(Absence(from_ns, until_ns, reason))
            self._hosts.write(self.folder)

    def pair(self, first: str, second: str) -> int:
        """Say that two hosts probe each other from now on: return the pair's number.

        After one of them has begun another part, it is another pair.
        """
        with self._lock:
            places = self._places[first], self._places[second]
            parts = tuple(max(len(self._hosts.hosts[place].parts) - 1, 0) for place in places)
            self._hosts.pairs.append(Pair(places, (parts[0], parts[1])))
            self._hosts.write(self.folder)
            return len(self._hosts.pairs) - 1

    def append(self, columns: Columns, table: Table = PROBES) -> None:
        """Add probes, or other rows about pairs: the columns of `PROBES`, or of `CHANGES`.

        Raises
        ------
        DiskFullError
            There is no room.
        """
        with self._lock:
            self._files.append(table.name, columns)

    def close(self, state: State = "complete") -> None:
        """Complete it; again is allowed.

        Raises
        ------
        DiskFullError
            There is no room for what still waited.
        """
        with self._lock:
            if self._files.closed:
                return
            try:
                self._files.close()
            except DiskFullError:
                state = "stopped: the disk is full"
                raise
            finally:
                self._hosts.state = state
                self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close("stopped: the disk is full" if isinstance(error, DiskFullError) else "complete")

    def _end(self) -> None:
        with self._opened:
            self._hosts.write(self.folder)


@dataclass(frozen=True, slots=True)
class _Part:
    folder: str


@dataclass(frozen=True, slots=True)
class _HostInFile:
    """As :class:`RecordedHost`, but that a part is an object with its folder."""

    name: str
    target: str
    parts: list[_Part]
    absences: list[Absence]


@dataclass(frozen=True, slots=True)
class _File:
    hosts: list[_HostInFile]
    pairs: list[Pair]
    hopscope: str
    state: State


def _host(given: _HostInFile) -> RecordedHost:
    parts = [_folder(part.folder) for part in given.parts]
    if len(given.absences) > max(len(parts), 1):
        raise ValueError(f"{len(given.absences)} absences after {len(parts)} parts")
    return RecordedHost(given.name, given.target, parts, given.absences)


def _folder(name: str) -> str:
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ValueError(f"'{name}' cannot be a part's folder")
    return name


def _check_pair(pair: Pair, hosts: list[RecordedHost]) -> None:
    for place, part in zip(pair.hosts, pair.parts, strict=True):
        if not 0 <= place < len(hosts) or not 0 <= part < max(len(hosts[place].parts), 1):
            raise ValueError(f"there is no part {part} of host {place}")
    if pair.hosts[0] == pair.hosts[1]:
        raise ValueError(f"host {pair.hosts[0]} cannot be a pair with itself")
