# SPDX-License-Identifier: Apache-2.0
"""What carries a channel's bytes: two descriptors, such as the pipes of a process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
from typing import TYPE_CHECKING, Final, Protocol

from hopscope.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PIPE_BYTES: Final = 1 << 20


class Transport(Protocol):
    """Carries bytes both ways; one thread reads, one at a time writes, any may close."""

    def read_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """Fill some of a buffer and return how much, 0 at the end.

        Raises
        ------
        TimeoutError
            Nothing came.
        ConnectionLostError
            It is gone, or closed.
        """

    def write(self, buffers: Sequence[memoryview]) -> None:
        """Write all of these, however long that takes.

        Raises
        ------
        ConnectionLostError
            It is gone, or closed.
        """

    def close(self) -> None:
        """End it, also for those who wait in `read_into` or `write`; idempotent."""

    def why_ended(self) -> str:
        """Return what is known about why the other side ended it, as a part of a sentence, may be empty."""


class Pipes:
    """Two descriptors, which it owns; they no longer block afterwards, whoever else has them.

    Parameters
    ----------
    read_fd, write_fd
        May be the same.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        for fd in {read_fd, write_fd}:
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):  # no pipe, or the user has many of them
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._closing = threading.Lock()
        self._closed_fd, self._close_fd = os.pipe()
        self._users = 1  # of the descriptors: one until closed, and who reads or writes

    def read_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """As of the protocol."""
        with self._using():
            while True:
                try:
                    return os.readv(self._read_fd, [buffer])
                except BlockingIOError:
                    self._wait(self._read_fd, select.POLLIN, timeout_s)
                except OSError as error:
                    raise _gone(error) from error

    def write(self, buffers: Sequence[memoryview]) -> None:
        """As of the protocol."""
        left = [buffer for buffer in buffers if buffer.nbytes]
        with self._using():
            while left:
                try:
                    written = os.writev(self._write_fd, left)
                except BlockingIOError:
                    self._wait(self._write_fd, select.POLLOUT, None)
                    continue
                except OSError as error:
                    raise _gone(error) from error
                while left and written >= left[0].nbytes:
                    written -= left.pop(0).nbytes
                if written:
                    left[0] = left[0][written:]

    def close(self) -> None:
        """As of the protocol."""
        with self._closing:
            if self._close_fd < 0:
                return
            os.close(self._close_fd)  # wakes who waits
            self._close_fd = -1
        self._leave()

    def why_ended(self) -> str:
        """As of the protocol: nothing is known."""
        return ""

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._closing:
            if self._close_fd < 0:
                raise _closed()
            self._users += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        # The last one closes: a descriptor's number must not be another file's while somebody still uses it.
        with self._closing:
            self._users -= 1
            last = not self._users
        if last:
            for fd in {self._read_fd, self._write_fd, self._closed_fd}:
                os.close(fd)

    def _wait(self, fd: int, event: int, timeout_s: float | None) -> None:
        poll = select.poll()
        poll.register(fd, event)
        poll.register(self._closed_fd, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else timeout_s * 1e3))
        if self._closed_fd in ready:
            raise _closed()
        if not ready:
            raise TimeoutError


def _closed() -> ConnectionLostError:
    return ConnectionLostError("The connection was closed here", how="closed")


def _gone(error: OSError) -> ConnectionLostError:
    return ConnectionLostError(f"The connection ended: {error.strerror}", how="ended")
