# SPDX-License-Identifier: Apache-2.0
"""The process that starts those that read the recording, and ends one that is of no use any more: as its owner.

A long operation on arrays can be interrupted by nobody: who asked has the process replaced.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from hopscope.live.processes import forked
from hopscope.verbs.web.reader import read
from hopscope.verbs.web.wire import READERS

if TYPE_CHECKING:
    from pathlib import Path


def keep(folder: Path, other: Path | None, line: socket.socket) -> None:
    """Start a process for each byte that comes, which is its number, and send the socket to ask it, until no more come.

    The process that had this number before is ended; there are never more than :data:`READERS`.
    """
    running: dict[int, int] = {}
    while (asked := line.recv(1)) and asked[0] < READERS:
        number = asked[0]
        if number in running:
            os.kill(running[number], signal.SIGKILL)
            os.waitpid(running[number], 0)
        ours, theirs = socket.socketpair()

        def run(line: socket.socket = line, ours: socket.socket = ours, theirs: socket.socket = theirs) -> None:
            line.close()
            ours.close()
            read(folder, other, theirs, quiet=bool(running))

        running[number] = forked(run)
        theirs.close()
        socket.send_fds(line, [asked], [ours.fileno()])
        ours.close()


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
