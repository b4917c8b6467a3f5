# SPDX-License-Identifier: Apache-2.0
"""Where queries put what does not fit into memory: a private folder, which is gone with the process that made it.

A process that is killed leaves its folder behind. It holds a lock on the folder as long as it lives, so the next one of
the same user finds out that nobody needs it any more, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import Final

_PREFIX: Final = "hopscope-spill-"
_MOST_BYTES: Final = 32 << 30
_ATTEMPTS: Final = 8
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Spill:
    """A folder for an engine's temporary files.

    Attributes
    ----------
    folder
        None where there is no directory for temporary files, or no room in it.
    most_bytes
        How much may be put there: half of what is free at the beginning, 32 GiB at most.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.most_bytes = 0
        with contextlib.suppress(OSError):
            parent = tempfile.gettempdir()
            remove_abandoned(parent)
            self.folder, lock_fd = _made(parent)
            status = os.fstatvfs(lock_fd)
            self.most_bytes = min(_MOST_BYTES, status.f_bavail * status.f_frsize // 2)
            self._end = weakref.finalize(self, _remove, self.folder, lock_fd)

    def close(self) -> None:
        """Remove the folder; again is allowed."""
        if self.folder is not None:
            self._end()


def remove_abandoned(parent: str) -> None:
    """Remove folders of this user's processes that were killed. Nothing of other users is touched, nor links."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
        for name in names:
            with contextlib.suppress(OSError):
                _remove_abandoned(parent, name)


def _remove_abandoned(parent: str, name: str) -> None:
    parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock_fd = os.open(name, _FOLDER, dir_fd=parent_fd)
        try:
            status = os.fstat(lock_fd)
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU:
                fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who lives has it
                shutil.rmtree(name, ignore_errors=True, dir_fd=parent_fd)
        finally:
            os.close(lock_fd)
    finally:
        os.close(parent_fd)


def _made(parent: str) -> tuple[Path, int]:
    """Make a folder, 0700, and return it with the descriptor that holds its lock."""
    for _ in range(_ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another start found it before it was locked
            lock_fd = os.open(folder, _FOLDER)
            try:
                fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(folder).st_ino == os.fstat(lock_fd).st_ino:  # noqa: PTH116 # as it is beside fstat
                    return Path(folder), lock_fd
            except BaseException:
                os.close(lock_fd)
                raise
            os.close(lock_fd)
    raise FileNotFoundError(parent)


def _remove(folder: Path, lock_fd: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock_fd)
