# SPDX-License-Identifier: Apache-2.0
"""Unix sockets that services listen on."""

from __future__ import annotations

import errno
import os
import socket
import stat
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_MODE: Final = 0o660


def listening(path: Path, gid: int, what: str) -> socket.socket:
    """Return a socket with this name, which nobody else listens on.

    Parameters
    ----------
    gid
        Group that may connect, besides the owner; -1: none.
    what
        What it is called where it cannot be made.

    Raises
    ------
    UsageError
        The name cannot be used.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove_stale(path)
        before = os.umask(0o777 & ~_MODE if gid >= 0 else 0o177)
        try:
            made.bind(os.fspath(path))
        finally:
            os.umask(before)
        if gid >= 0:
            os.chown(path, -1, gid)
        made.listen()
    except OSError as error:
        made.close()
        used = error.errno == errno.EADDRINUSE
        raise UsageError(
            f"{path} cannot be {what}: {error.strerror or error}",
            "Another program uses it, or a file is there: name another one" if used else "Name another one",
        ) from error
    made.setblocking(False)  # noqa: FBT003 # as the library has it
    return made


def remove_stale(path: Path) -> None:
    """Remove a socket on which nobody listens any more; never anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
