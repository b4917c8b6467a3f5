# SPDX-License-Identifier: Apache-2.0
"""What to say where a recording cannot be written, and what to do about it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from hopscope.errors import DiskFullError

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.store.folder import OpenFolder

_ELSEWHERE: Final = "Give another folder with -o"
_KEPT: Final = "what was recorded before can be read"
# What to do about what the kernel says.
_STEPS: Final = {
    errno.ENOSPC: "Free some space, or inodes (df -i)",
    errno.EDQUOT: "Free some space, or have the quota raised",
    errno.EFBIG: "Raise the limit of a file's size (ulimit -f)",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Close some programs, or raise the sysctl fs.file-max",
    errno.EROFS: "Mount the file system for writing",
    errno.EIO: "Look for the disk's errors in dmesg",
    errno.EACCES: _ELSEWHERE,
    errno.ENOENT: _ELSEWHERE,
}


def unwritable(folder: OpenFolder, name: str, error: Exception) -> DiskFullError:
    """Return what to raise when a part of a recording cannot be written."""
    if folder.is_deleted:
        return DiskFullError(
            f"{folder.path} was deleted while it was written", "Record again, into a folder that nobody deletes"
        )
    return unwritable_file(folder.path / name, error)


def unwritable_file(path: Path, error: Exception) -> DiskFullError:
    """Return what to raise when a file of a recording cannot be written."""
    code = _code(error)
    cause = os.strerror(code) if code else str(error).strip().splitlines()[-1]
    return DiskFullError(f"{path} cannot be written: {cause}", f"{_STEPS.get(code or 0, _ELSEWHERE)}; {_KEPT}")


def _code(error: Exception) -> int | None:
    """Return what the kernel said, rather than what the engine makes of it."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    words = str(error)
    return next((code for code in _STEPS if os.strerror(code) in words), None)
