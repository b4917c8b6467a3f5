# SPDX-License-Identifier: Apache-2.0
"""Whether a recording is still being written: its recorder locks the folder, until it ends in whichever way."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.store.folder import OpenFolder


class FolderLock:
    """Holds the lock of a folder until it is released, or the process ends.

    A recording goes on where the file system has no locks: :func:`is_locked` takes it as locked there.

    Parameters
    ----------
    folder
        Which is open.
    """

    def __init__(self, folder: OpenFolder) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = folder.lock_fd()
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Release it; again is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(folder: Path) -> bool:
    """Tell whether a folder is locked, or may be: where the lock cannot be looked at, nobody knows."""
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(folder_fd)
    return False
