# SPDX-License-Identifier: Apache-2.0
"""The terminal as it was before, however this process ends: a child waits for that, as nothing runs after a SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.gate import Screen


@contextlib.contextmanager
def guarded_terminal(screen: Screen) -> Iterator[None]:
    """Put back the terminal's settings and leave its screen if this process dies inside of it.

    To be entered before there are threads: it forks.
    """
    fd = screen.fileno()
    before = termios.tcgetattr(fd)
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        _wait(screen, fd, before, read_fd, write_fd)
    os.close(read_fd)
    try:
        yield
    finally:
        os.write(write_fd, b"!")  # it ended, and has put back everything itself
        os.close(write_fd)
        os.waitpid(child, 0)


def _wait(screen: Screen, fd: int, before: list[object], read_fd: int, write_fd: int) -> None:
    """Wait until the parent says that all is well, or is gone."""
    try:
        os.close(write_fd)
        # What the terminal sends to all of its programs is for the parent; a background process may write all the same.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        if not os.read(read_fd, 1):
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, before)  # type: ignore[arg-type] # as tcgetattr returned it
                screen.leave()
    finally:
        os._exit(0)
