# SPDX-License-Identifier: Apache-2.0
"""Files that a connection's security rests on: who else can read or write them.

A guard against mistakes, as ssh has it; it does not race with somebody who changes files meanwhile.
"""

from __future__ import annotations

import shlex
import stat
from typing import TYPE_CHECKING

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def check_secret(path: Path) -> None:
    """Refuse a file that others than its owner can read or write.

    Raises
    ------
    UsageError
        They can, or there is no such file.
    """
    if _mode(path) & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"{path} is a private key that users other than its owner can read",
            f"Run: chmod 600 {shlex.quote(str(path))}",
        )


def check_unwritable(path: Path) -> None:
    """Refuse a file that others than its owner can write: they could let themselves in.

    Raises
    ------
    UsageError
        They can, or there is no such file.
    """
    if _mode(path) & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path} defines who is trusted, and users other than its owner can write it",
            f"Run: chmod go-w {shlex.quote(str(path))}",
        )


def _mode(path: Path) -> int:
    try:
        # A file with an access control list shows in the group's bits what the list allows at most.
        found = path.stat()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a file")
    return found.st_mode
