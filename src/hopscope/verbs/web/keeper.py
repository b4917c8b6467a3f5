# SPDX-License-Identifier: Apache-2.0
"""The process that starts those that read the recording, and ends one that is of no use any more: as its owner.

A long operation on arrays can be interrupted by nobody: who asked has the process replaced.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from hopscope.live.processes import child_processes, forked
from hopscope.verbs.web.reader import read
from hopscope.verbs.web.wire import READERS

if TYPE_CHECKING:
    from pathlib import Path


def keep(folder: Path, other: Path | None, line: socket.socket) -> None:
    """Start a process for each byte that comes, which is its number, and send the socket to ask it, until no more come.

    The process that had this number before is ended; there are never more than :data:`READERS`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    numbers: dict[int, int] = {}
    with child_processes() as running:
        while (asked := line.recv(1)) and asked[0] < READERS:
            if (before := numbers.get(asked[0])) is not None:
                os.kill(before, signal.SIGKILL)
                os.waitpid(before, 0)
                del running[before]
            pid, ours = _started(folder, other, line, quiet=bool(numbers))
            numbers[asked[0]], running[pid] = pid, "reads the recording"
            socket.send_fds(line, [asked], [ours.fileno()])
            ours.close()


def _started(folder: Path, other: Path | None, line: socket.socket, *, quiet: bool) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()

    def run() -> None:
        line.close()
        ours.close()
        read(folder, other, theirs, quiet=quiet)

    pid = forked(run)
    theirs.close()
    return pid, ours


def ask_for(line: socket.socket, number: int) -> None:
    """Have a process started, or replaced; :func:`received` gives the socket to ask it when the line can be read."""
    line.send(bytes([number]))


def received(line: socket.socket) -> socket.socket:
    """Return the socket to ask the process that was started.

    Raises
    ------
    ConnectionError
        There is nobody who could start one.
    """
    _, fds, _, _ = socket.recv_fds(line, 1, 1)
    if not fds:
        raise ConnectionError
    return socket.socket(fileno=fds[0])
