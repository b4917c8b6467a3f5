# SPDX-License-Identifier: Apache-2.0
"""A folder that is written into by its descriptor, whatever becomes of its name meanwhile.

Root writes where others may rename, and put links. Nothing here is found by its path a second time: a folder that is
moved takes with it what is still to be written, and a link in its place is not followed. New files have names that
nobody has, and belong to whoever ran sudo, if somebody did.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Writes a file of that path, which is there and empty.
Write: TypeAlias = Callable[[Path], None]

# Addresses and names of processes are personal data.
PRIVATE: Final = 0o600
_READ: Final = 0o444
_OWNER: Final = 0o700
# As the kernel has it, for links that lead to links.
_MOST_LINKS: Final = 40
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_AT_END: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW
_ANOTHER: Final = "Name a new folder with -o"


class Owner(NamedTuple):
    """User and group that something belongs to."""

    uid: int
    gid: int


class OpenFolder:
    """A folder that is there, and open.

    Parameters
    ----------
    folder_fd
        Its descriptor, which is closed with it.
    named
        What it was called when it was opened.
    mode
        Of files that are made in it; a folder can be searched by whoever may read.
    """

    def __init__(self, folder_fd: int, named: Path, mode: int = PRIVATE) -> None:
        self._fd = folder_fd
        self._named = named
        self._mode = mode

    @property
    def path(self) -> Path:
        """What it is called now: as before, unless it was moved."""
        with contextlib.suppress(OSError):  # nothing has that name any more
            if os.path.samestat(os.stat(self._named), os.fstat(self._fd)):  # noqa: PTH116 # beside the descriptor's
                return self._named
        return self._named if self.is_deleted else Path(f"/proc/self/fd/{self._fd}").readlink()

    @property
    def name(self) -> str:
        """The last part of what it was called."""
        return self._named.name

    @property
    def is_deleted(self) -> bool:
        """Whether it has no name any more."""
        return os.fstat(self._fd).st_nlink == 0

    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        with os.scandir(self._fd) as entries:
            return next(entries, None) is None

    def lock_fd(self) -> int:
        """Return another descriptor of it, which a lock can be kept on."""
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._fd)

    def folder(self, name: str) -> OpenFolder:
        """Make a folder in it, unless it is there, and open it.

        Raises
        ------
        OSError
            That cannot be, or it is a link.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, _OWNER, dir_fd=self._fd)
        made_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd)
        _settle(made_fd, folder_mode(self._mode))
        return OpenFolder(made_fd, self._named / name, self._mode)

    def put(self, name: str, write: Write, *, sync: bool = False) -> int:
        """Write a file in one step: a reader finds all of it or nothing. Return its size.

        Raises
        ------
        OSError, and what `write` raises
            There is no room, say; nothing stays of it.
        """
        partial = f".{name}.partial"
        self.remove(partial)
        partial_fd = os.open(partial, _NEW_FILE, PRIVATE, dir_fd=self._fd)
        try:
            write(Path(f"/proc/self/fd/{partial_fd}"))
            if sync:
                os.fsync(partial_fd)
            _settle(partial_fd, self._mode)
            os.rename(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return os.fstat(partial_fd).st_size
        except BaseException:
            self.remove(partial)
            raise
        finally:
            os.close(partial_fd)

    def publish(self, partial: str, name: str) -> None:
        """Give what has been made in it its name: a file if nothing has that, a folder in place of an empty one.

        Raises
        ------
        OSError
            Something has that name, or it cannot be had.
        """
        if not stat.S_ISDIR(os.stat(partial, dir_fd=self._fd, follow_symlinks=False).st_mode):  # as below
            with contextlib.suppress(PermissionError):  # a file system without links
                os.link(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                self.remove(partial)
                return
        os.rename(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def discard(self, name: str) -> None:
        """Delete a file, or a folder with what is in it, if it is there."""
        self.remove(name)
        shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def create(self, name: str) -> int:
        """Make a file and return its descriptor, to write.

        Raises
        ------
        OSError
            That cannot be, or there is one.
        """
        made_fd = os.open(name, _NEW_FILE, PRIVATE, dir_fd=self._fd)
        _settle(made_fd, self._mode)
        return made_fd

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file, which is made if it is not there.

        Raises
        ------
        OSError
            That cannot be, or there is no room for all of it.
        """
        file_fd = os.open(name, _AT_END, PRIVATE, dir_fd=self._fd)
        try:
            _settle(file_fd, self._mode)
            if os.write(file_fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file_fd)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def close(self) -> None:
        """Close it; again is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_folder(folder: Path | OpenFolder, mode: int = PRIVATE) -> OpenFolder:
    """Make a folder for a recording and open it; one that is open is returned as it is.

    Raises
    ------
    UsageError
        It has something in it, cannot be made, or belongs to somebody else, as does a link on the way to it.
    """
    if isinstance(folder, OpenFolder):
        return folder
    try:
        folder_fd, made = _descended(folder, mode)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}", "Give another folder with -o") from error
    with contextlib.ExitStack() as stack:
        found = OpenFolder(folder_fd, folder, mode)
        stack.callback(found.close)
        if not made:
            _require_own(os.fstat(folder_fd), f"{folder} belongs")
        if not found.is_empty():
            raise UsageError(f"{folder} is not empty", _ANOTHER)
        stack.pop_all()
    return found


def own_folder(folder: Path, mode: int = PRIVATE) -> None:
    """Make a folder for recordings, or find that the one which is there is ours, whatever it has.

    Raises
    ------
    UsageError
        It cannot be made, or belongs to somebody else, as does a link on the way to it.
    """
    try:
        folder_fd, made = _descended(folder, mode)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}", "Give another folder with -o") from error
    try:
        if not made:
            _require_own(os.fstat(folder_fd), f"{folder} belongs")
    finally:
        os.close(folder_fd)


def new_folder(folder: Path, mode: int = PRIVATE) -> OpenFolder:
    """Make a folder for a recording and open it.

    Raises
    ------
    FileExistsError
        It is there.
    OSError
        It cannot be made.
    UsageError
        A link on the way to it belongs to somebody else.
    """
    folder_fd, made = _descended(folder, mode)
    if not made:
        os.close(folder_fd)
        raise FileExistsError
    return OpenFolder(folder_fd, folder, mode)


@contextlib.contextmanager
def kept_if_used(folder: OpenFolder) -> Iterator[OpenFolder]:
    """Close a folder at the end, and remove it if nothing has come into it."""
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # there is something
            folder.path.rmdir()
        folder.close()


@contextlib.contextmanager
def given_folder(folder: Path, mode: int) -> Iterator[OpenFolder]:
    """Open a folder as :func:`open_folder` does; one that was not there goes away again if nothing comes into it.

    Raises
    ------
    UsageError
        As there.
    """
    was_there = os.path.exists(folder)  # noqa: PTH110 # it says no where Path raises: a name is too long
    found = open_folder(folder, mode)
    with contextlib.closing(found) if was_there else kept_if_used(found):
        yield found


def _descended(path: Path, mode: int) -> tuple[int, bool]:
    """Go to a folder from one to the next and make those that are missing; say whether the last was.

    Links are followed where whoever could put them there may be trusted.
    """
    made, links = False, 0
    parts = deque(path.parts)
    here_fd = _start(parts)
    try:
        while parts:
            name = parts.popleft()
            there_fd, made = _next(here_fd, name, _OWNER if not parts else 0o777)
            found = os.fstat(there_fd)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                _require_own(found, f"{name} in {path} is a link that belongs")
                parts.extendleft(reversed(Path(os.readlink("", dir_fd=there_fd)).parts))
                os.close(there_fd)
                there_fd = os.dup(here_fd) if not parts or not parts[0].startswith("/") else _start(parts)
            os.close(here_fd)
            here_fd = there_fd
        folder_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here_fd)
    finally:
        os.close(here_fd)
    if made:
        _settle(folder_fd, folder_mode(mode))
    return folder_fd, made


def _start(parts: deque[str]) -> int:
    root = parts.popleft() if parts and parts[0].startswith("/") else "."
    return os.open(root, os.O_PATH | os.O_DIRECTORY)


def _next(here_fd: int, name: str, mode: int) -> tuple[int, bool]:
    """Open what has a name in a folder, a link as itself, or make a folder; say whether it was made."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _LOOK, dir_fd=here_fd), False
    os.mkdir(name, mode, dir_fd=here_fd)
    made_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here_fd)
    owner = sudo_user()
    if (
        owner and os.fstat(here_fd).st_uid == owner.uid
    ):  # in a folder of root's, such as the state directory, it is root's
        _settle(made_fd)
    return made_fd, True


def sudo_user() -> Owner | None:
    """Return who ran us by sudo(8)."""
    try:
        found = Owner(int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    except (KeyError, ValueError):
        return None
    return found if os.geteuid() == 0 and min(found) >= 0 else None


def _settle(fd: int, mode: int | None = None) -> None:
    """Give a new file or folder its mode and its owner, as far as the file system has these."""
    with contextlib.suppress(OSError):
        if mode is not None:
            os.fchmod(fd, mode)
        if owner := sudo_user():
            os.fchown(fd, *owner)


def folder_mode(mode: int) -> int:
    """Return the mode of a folder whose files have this one."""
    return _OWNER | mode | (mode & _READ) >> 2


def _require_own(found: os.stat_result, what: str) -> None:
    """Refuse what belongs to neither us, nor whoever ran sudo, nor the owner of the root folder.

    Raises
    ------
    UsageError
        It does.
    """
    by_sudo = sudo_user()
    if found.st_uid not in {os.geteuid(), os.stat("/").st_uid, by_sudo.uid if by_sudo else 0}:  # noqa: PTH116 # nothing of a path
        raise UsageError(f"{what} to {_user(found.st_uid)}, who could redirect what is written", _ANOTHER)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
