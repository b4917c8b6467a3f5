# SPDX-License-Identifier: Apache-2.0
"""The process that starts those that read the recording, and ends one that is of no use any more: as its owner.

A long operation on arrays can be interrupted by nobody: who asked has the process replaced.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Final

from hopscope.live.processes import child_processes, forked, how_ended
from hopscope.verbs.web.reader import read
from hopscope.verbs.web.wire import READERS

if TYPE_CHECKING:
    from pathlib import Path

# With a process's number: how has it ended? The answer is what waitpid(2) says, or that nobody knows.
_HOW: Final = 0x80
_STATUS: Final = struct.Struct("=i")
_UNKNOWN: Final = -1
# How long it may take from the end of its socket to its own, and how often to look meanwhile.
_END_S, _LOOKS = 2.0, 40


def keep(folder: Path, other: Path | None, line: socket.socket) -> None:
    """Start a process for each byte that comes, which is its number, and send the socket to ask it, until no more come.

    The process that had this number before is ended; there are never more than :data:`READERS`. For :data:`_HOW` and a
    number, the status with which that process has ended is sent instead.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    numbers: dict[int, int] = {}
    ended: dict[int, int] = {}
    quiet = False
    with child_processes() as running:
        while (asked := line.recv(1)) and asked[0] & ~_HOW < READERS:
            number = asked[0] & ~_HOW
            is_how = bool(asked[0] & _HOW)
            if number in numbers:
                status = _status(numbers[number], wait=is_how and number not in ended)
                if status is not None:
                    ended[number] = status
                    del running[numbers.pop(number)]
            if is_how:
                line.send(_STATUS.pack(ended.pop(number, _UNKNOWN)))
                continue
            if (before := numbers.pop(number, None)) is not None:
                os.kill(before, signal.SIGKILL)
                os.waitpid(before, 0)
                del running[before]
            try:
                pid, ours = _started(folder, other, line, quiet=quiet)
            except OSError as error:  # the next one may be started
                line.send(bytes([error.errno or errno.EAGAIN]))
                continue
            numbers[number], running[pid], quiet = pid, "reads the recording", True
            socket.send_fds(line, [bytes(1)], [ours.fileno()])
            ours.close()


def _status(pid: int, *, wait: bool) -> int | None:
    """Return the status with which a child has ended, None if it has not; its end follows that of its socket."""
    for pause_s in (0.0, *([_END_S / _LOOKS] * _LOOKS if wait else ())):
        time.sleep(pause_s)
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
    return None


def _started(folder: Path, other: Path | None, line: socket.socket, *, quiet: bool) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()

    def run() -> None:
        line.close()
        ours.close()
        read(folder, other, theirs, quiet=quiet)

    with theirs:
        try:
            return forked(run), ours
        except OSError:
            ours.close()
            raise


def ask_for(line: socket.socket, number: int) -> None:
    """Have a process started, or replaced; :func:`received` gives the socket to ask it when the line can be read."""
    line.send(bytes([number]))


def received(line: socket.socket) -> socket.socket:
    """Return the socket to ask the process that was started.

    Raises
    ------
    ConnectionError
        There is nobody who could start one.
    OSError
        None can be started, or its socket not be taken.
    """
    answer, fds, _, _ = socket.recv_fds(line, 1, 1)
    if not answer:
        raise ConnectionError
    if not fds:
        code = answer[0] or errno.EMFILE  # the kernel leaves out what we can have no number for
        raise OSError(code, os.strerror(code))
    return socket.socket(fileno=fds[0])


def ask_how(line: socket.socket, number: int) -> None:
    """Ask how a process has ended; :func:`answered_how` says so when the line can be read."""
    line.send(bytes([number | _HOW]))


def answered_how(line: socket.socket) -> str:
    """Return how the process has ended, as the end of a sentence."""
    answer = line.recv(_STATUS.size)
    (status,) = _STATUS.unpack(answer) if len(answer) == _STATUS.size else (_UNKNOWN,)
    return "has ended" if status == _UNKNOWN else how_ended(status)
