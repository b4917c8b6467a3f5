# SPDX-License-Identifier: Apache-2.0
"""Marks: what a user writes into running recordings, as an event.

A recorder listens at an abstract Unix socket of its network namespace, of which nothing is left when it ends. Each side
asks the kernel who the other one is: a recorder takes marks of its own user and of root, and these are sent to no one
else. The time is read by who sends it, before it is sent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope.errors import UsageError
from hopscope.store.schema import TEXT, Column, Table

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

MARKS: Final = Table(
    "e_mark",
    "`hopscope mark` was called",
    (
        Column("time_ns", np.int64, "when, CLOCK_MONOTONIC"),
        Column("cpu", np.int16, "where"),
        Column("tid", np.int32, "its thread"),
        Column("text", TEXT, "what was given as its text"),
    ),
)
MOST_BYTES: Final = 1024
_PREFIX: Final = "hopscope-mark-"
_HEAD: Final = struct.Struct("=qh")
_CREDENTIALS: Final = struct.Struct("=iII")
_WAITING: Final = 64
_TAKEN, _REFUSED = b"taken", b"refused"
# A recorder looks several times a second, unless its host is very busy.
_ANSWERS_WITHIN_S: Final = 30.0


class Marks:
    """Takes marks while it is entered.

    Attributes
    ----------
    address : str
        Of the socket, once entered.
    """

    def __enter__(self) -> Self:
        """Listen."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.address = f"\0{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self._listener.bind(self.address)
        self._listener.listen(_WAITING)
        self._open: list[tuple[socket.socket, int]] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in (self._listener, *(connection for connection, _ in self._open)):
            each.close()

    def read(self, started_ns: int) -> dict[str, NDArray[Any]]:
        """Take the marks that have come, as columns of :data:`MARKS`; those of other times than since `started_ns` not.

        Such a time is that of a process in another time namespace.
        """
        self._accept()
        waiting, self._open = self._open, []
        rows = [row for connection, pid in waiting if (row := self._row(connection, pid, started_ns))]
        cells = zip(*rows, strict=True) if rows else [[] for _ in MARKS.columns]
        return {
            column.name: np.array(list(values), column.dtype)
            for column, values in zip(MARKS.columns, cells, strict=True)
        }

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # nobody is there, or no descriptor is left: those who wait keep waiting
            while len(self._open) < _WAITING:
                connection, _ = self._listener.accept()
                connection.setblocking(False)  # noqa: FBT003 # its only argument
                pid, uid = _peer(connection)
                if uid in {0, os.geteuid()}:
                    self._open.append((connection, pid))
                else:
                    connection.close()

    def _row(self, connection: socket.socket, pid: int, started_ns: int) -> tuple[int, int, int, str] | None:
        """Return what came over a connection, and answer; None if there is nothing, or nothing yet."""
        try:
            message = connection.recv(_HEAD.size + MOST_BYTES)
        except BlockingIOError:
            self._open.append((connection, pid))
            return None
        except OSError:
            message = b""
        with connection:
            if len(message) < _HEAD.size:
                return None
            time_ns, cpu = _HEAD.unpack_from(message)
            fits = started_ns <= time_ns <= time.monotonic_ns()
            with contextlib.suppress(OSError):  # it has not waited for the answer
                connection.send(_TAKEN if fits else _REFUSED)
        return (time_ns, cpu, pid, message[_HEAD.size :].decode(errors="replace")) if fits else None


def mark(text: str) -> list[int]:
    """Write a mark into all running recordings of this network namespace, and return their processes.

    Raises
    ------
    UsageError
        The text is empty or too long; or there is no recording, or none that takes it.
    """
    raw = text.encode(errors="replace")
    if not raw or len(raw) > MOST_BYTES:
        raise UsageError(f"A mark has 1 to {MOST_BYTES} bytes, and this one {len(raw)}", "Give another text")
    message = _HEAD.pack(time.monotonic_ns(), ctypes.CDLL(None).sched_getcpu()) + raw
    answers = [answer for address in _addresses() if (answer := _sent(address, message))]
    taken = [pid for pid, answer in answers if answer == _TAKEN]
    if not taken and answers:
        raise UsageError(
            "The recording began after the mark, or its clock is not that of this process",
            "Call it again, and in the time namespace of `hopscope record`",
        )
    if not taken:
        raise UsageError(
            "No recording is running that this user may mark",
            "Start `hopscope record`, and call `hopscope mark` as the same user or root, in the same network namespace",
        )
    return taken


def _addresses() -> list[str]:
    """Return where recorders of this network namespace listen."""
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]}
    return sorted(f"\0{name[1:]}" for name in names if name.startswith(f"@{_PREFIX}"))


def _sent(address: str, message: bytes) -> tuple[int, bytes] | None:
    """Send a mark; return the recorder's process and its answer, None if it is not to be trusted, or has ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_ANSWERS_WITHIN_S)
        try:
            connection.connect(address)
            pid, uid = _peer(connection)
            if uid not in {0, os.geteuid()}:
                return None
            connection.send(message)
            answer = connection.recv(len(_REFUSED))
        except OSError:
            return None
    return (pid, answer) if answer else None


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return process and user of the other side."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
