# SPDX-License-Identifier: Apache-2.0
"""Open files of recordings that others may have made: regular files alone, and none that a link leads to elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read it. What is to be opened never blocks, as a FIFO would, and no device is touched.

    Raises
    ------
    FormatError
        It is something else, or a symbolic link.
    OSError
        It cannot be opened.
    """
    try:
        file_fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a socket, or a device without a driver
            raise irregular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file_fd).st_mode):
        os.close(file_fd)
        raise irregular(path)
    return os.fdopen(file_fd, "rb")


def irregular(path: Path) -> FormatError:
    """Return what to raise where something is not a regular file."""
    return FormatError(f"{path} is not a regular file", "Restore the recording from a backup")
