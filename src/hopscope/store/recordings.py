# SPDX-License-Identifier: Apache-2.0
"""The state directory: where recordings go whose folder was not named, and what is in it.

It is ``$HOPSCOPE_RECORDINGS``, or ``recordings`` in ``$STATE_DIRECTORY`` (of a systemd unit), or
``/var/lib/hopscope/recordings`` for root, or ``hopscope/recordings`` in ``$XDG_STATE_HOME`` or ``~/.local/state``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hopscope.errors import HopscopeError, UsageError
from hopscope.store import hosts as of_hosts
from hopscope.store import meta as of_trace
from hopscope.store.document import has_format
from hopscope.store.folder import kept_if_used, new_folder
from hopscope.store.hosts import Hosts
from hopscope.store.lock import is_locked
from hopscope.store.meta import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.store.folder import OpenFolder

RecordingState: TypeAlias = Literal["complete", "cut off", "disk full", "being recorded", "unreadable"]

VARIABLE: Final = "HOPSCOPE_RECORDINGS"
_OF_ROOT: Final = Path("/var/lib/hopscope/recordings")
_STATES: Final[dict[str, RecordingState]] = {"complete": "complete", "stopped: the disk is full": "disk full"}


@dataclass(frozen=True, slots=True)
class StoredRecording:
    """A recording in the state directory, as its metadata describe it.

    Attributes
    ----------
    folder
        Its folder.
    state
        ``cut off``: its recorder was killed. ``unreadable``: the metadata are damaged, or of another version.
    modified_ns
        CLOCK_REALTIME when its metadata were last written: at its beginning and at its end.
    started_ns, ended_ns
        CLOCK_REALTIME of the host (of several: the first beginning and the last end); None: not known.
    traces
        The folders that have tables of events: its own, or one for each part of each host.
    missed
        Events that are missing because the kernel suppressed the recording programs.
    hosts
        Names of the hosts that were recorded; empty where the metadata do not have them.
    options
        What was asked for, as the metadata have it.
    problem
        Why it is unreadable, one sentence.
    known
        It is certain to be a recording: an unreadable one may be anything.
    """

    folder: Path
    state: RecordingState
    modified_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None
    traces: tuple[Path, ...] = ()
    missed: int = 0
    hosts: tuple[str, ...] = ()
    options: dict[str, Any] | None = None
    problem: str = ""
    known: bool = True

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.name

    @property
    def order(self) -> tuple[int, str]:
        """What recordings are sorted by: the later one began later."""
        return (self.modified_ns if self.started_ns is None else self.started_ns, self.name)


def state_directory() -> Path:
    """Return where recordings go whose folder was not named; it need not be there."""
    return _chosen_directory() or (_OF_ROOT if os.geteuid() == 0 else _of_user())


def read_directories() -> list[Path]:
    """Return where to look for recordings: users find root's, too, after their own."""
    own = state_directory()
    others = [] if _chosen_directory() or own == _OF_ROOT or not os.access(_OF_ROOT, os.R_OK | os.X_OK) else [_OF_ROOT]
    return [own, *others]


@contextlib.contextmanager
def dated_folder(mode: int, directory: Path | None = None) -> Iterator[OpenFolder]:
    """Make a folder in a directory, named after the time (UTC); it goes away again if nothing comes into it.

    Parameters
    ----------
    mode
        Of its files.
    directory
        Where; None: in the state directory.

    Raises
    ------
    UsageError
        It cannot be made.
    """
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    with kept_if_used(_fresh(directory or state_directory(), name, mode)) as folder:
        yield folder


def recordings_in(directory: Path) -> list[StoredRecording]:
    """Return the recordings in a directory, the oldest first; links and other folders are none.

    Raises
    ------
    HopscopeError
        The directory cannot be read.
    """
    try:
        folders = [Path(each) for each in os.scandir(directory) if each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HopscopeError(
            f"{directory} cannot be read: {error.strerror}", f"Set {VARIABLE} to another one"
        ) from error
    found = (_described(folder) for folder in folders if not folder.name.startswith("."))
    return sorted((each for each in found if each), key=lambda each: each.order)


def recording_named(name: str) -> Path | None:
    """Return the folder of a recording in the state directory; None: it has none of that name."""
    if not name or name.startswith(".") or "/" in name:
        return None
    folders = (directory / name for directory in read_directories())
    return next((folder for folder in folders if is_recording(folder)), None)


def is_recording(folder: Path) -> bool:
    """Tell whether a folder has a recording, of one host or several."""
    return os.path.isfile(folder / of_trace.FILE) or os.path.isfile(folder / of_hosts.FILE)  # noqa: PTH113 # a Path raises where reading is not permitted


def last_recording() -> tuple[StoredRecording, list[StoredRecording]]:
    """Return the last recording that can be opened, and later ones that are being recorded or unreadable.

    Raises
    ------
    UsageError
        There is none.
    HopscopeError
        A directory cannot be read.
    """
    directories = read_directories()
    found = sorted(
        (each for directory in directories for each in recordings_in(directory)), key=lambda each: each.order
    )
    later: list[StoredRecording] = []
    for each in reversed(found):
        if each.state not in {"being recorded", "unreadable"}:
            return each, later
        later.append(each)
    where = " or ".join(map(str, directories))
    if later:
        raise UsageError(
            f"No TRACE was named, and no recording in {where} can be opened: {because(later)}",
            "Name one to read what is there of it",
        )
    raise UsageError(
        f"No TRACE was named, and there is no recording in {where}", "Name a folder, or make one: `hopscope record`"
    )


def because(passed_over: Sequence[StoredRecording]) -> str:
    """Return why recordings are not the last one: ``20261123-041500 is being recorded``."""
    return ", ".join(
        f"{each.name} is {each.state if each.state == 'being recorded' else 'unreadable'}" for each in passed_over
    )


def _chosen_directory() -> Path | None:
    """Return the directory that the environment names."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    if unit := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(unit) / "recordings"
    return None


def _of_user() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "hopscope" / "recordings"


def _fresh(directory: Path, name: str, mode: int) -> OpenFolder:
    try:
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                return new_folder(directory / (name if number == 1 else f"{name}-{number}"), mode)
    except OSError as error:
        raise UsageError(
            f"A folder cannot be made in {directory}: {error.strerror}", f"Give one with -o, or set {VARIABLE}"
        ) from error
    raise AssertionError  # count() has no end


def _described(folder: Path) -> StoredRecording | None:
    """Return what a folder says of itself; None: it is no recording."""
    for file, kind, read in ((of_hosts.FILE, of_hosts.FORMAT, _of_hosts), (of_trace.FILE, of_trace.FORMAT, _of_trace)):
        path = folder / file
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return StoredRecording(folder, "unreadable", 0, problem=f"{folder}: {error.strerror}", known=False)
        if not stat.S_ISREG(status.st_mode):
            continue
        try:
            return read(folder, status.st_mtime_ns)
        except HopscopeError as error:
            known = has_format(path, kind)
            return StoredRecording(folder, "unreadable", status.st_mtime_ns, problem=str(error), known=known)
    return None


def _of_trace(folder: Path, modified_ns: int) -> StoredRecording:
    metadata = Metadata.read(folder)
    started_ns, ended_ns = _times_ns(metadata)
    return StoredRecording(
        folder,
        _state(folder, metadata.state),
        modified_ns,
        started_ns=started_ns,
        ended_ns=ended_ns,
        traces=(folder,),
        missed=metadata.missed,
        hosts=tuple(filter(None, [str(metadata.host.get("name", ""))])),
        options=metadata.options,
    )


def _of_hosts(folder: Path, modified_ns: int) -> StoredRecording:
    hosts = Hosts.read(folder)
    traces = tuple(folder / part for host in hosts.hosts for part in host.parts)
    parts = [Metadata.read(trace) for trace in traces if is_recording(trace)]
    times = [_times_ns(part) for part in parts]
    ends = [ended_ns for _, ended_ns in times if ended_ns is not None]
    return StoredRecording(
        folder,
        _state(folder, hosts.state),
        modified_ns,
        started_ns=min((started_ns for started_ns, _ in times), default=None),
        ended_ns=max(ends, default=None),
        traces=traces,
        missed=sum(part.missed for part in parts),
        hosts=tuple(host.name for host in hosts.hosts),
        options=parts[0].options if parts else None,
    )


def _state(folder: Path, state: str) -> RecordingState:
    if state in _STATES:
        return _STATES[state]
    return "being recorded" if is_locked(folder) else "cut off"


def _times_ns(metadata: Metadata) -> tuple[int, int | None]:
    """Return beginning and end by the wall clock."""
    ahead_ns = metadata.realtime_ns - metadata.started_ns
    return metadata.realtime_ns, None if metadata.ended_ns is None else metadata.ended_ns + ahead_ns
