# SPDX-License-Identifier: Apache-2.0
"""A terminal that can end, as when its window is closed or ssh loses its connection."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from tests.lab.command import HOPSCOPE, environ, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def in_terminal(
    *args: object, before: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], Callable[[], None]]]:
    """Start the command line in a terminal of its own; yield the process, and what ends the terminal.

    `before` are the words of a program that starts it.
    """
    master_fd, terminal_fd = os.openpty()

    child = subprocess.Popen(
        ["setsid", "--ctty", *before, *HOPSCOPE, *map(str, args)],
        stdin=terminal_fd,
        stdout=terminal_fd,
        stderr=terminal_fd,
        env=environ(),
        text=True,
    )
    started.append(child)
    os.close(terminal_fd)
    with os.fdopen(master_fd, "rb") as master:
        yield child, master.close
