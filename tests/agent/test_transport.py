# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.transport import Pipes
from hopscope.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0


class Ends:
    """A transport, and the other ends of its pipes.

    Attributes
    ----------
    pipes, fds
        The transport, and its descriptors.
    to_it, from_it
        What is written here, it reads; what it writes, is read here.
    """

    def __init__(self) -> None:
        reading, self.to_it = os.pipe()
        self.from_it, writing = os.pipe()
        self.fds = [reading, writing]
        self.pipes = Pipes(reading, writing)

    def close(self) -> None:
        self.pipes.close()
        for fd in (self.to_it, self.from_it):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def read(pipes: Pipes, count: int, timeout_s: float | None = PATIENCE_S) -> bytes:
    buffer = bytearray(count)
    return bytes(buffer[: pipes.read_into(memoryview(buffer), timeout_s)])


def test_what_there_is_comes_at_once_and_then_the_end(ends: Ends) -> None:
    os.write(ends.to_it, b"some")
    assert read(ends.pipes, 100) == b"some"
    os.close(ends.to_it)
    ends.to_it = -1
    assert read(ends.pipes, 100) == b""


def test_nothing_in_time(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        read(ends.pipes, 1, 0.01)


def test_all_buffers_are_written_however_full_the_pipe_is(ends: Ends) -> None:
    buffers = [os.urandom(size) for size in (1, 0, 3_000_000, 7, 1_000_000)]
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(ends.pipes.write, [*map(memoryview, buffers)])
        got = b""
        while len(got) < sum(map(len, buffers)):
            got += os.read(ends.from_it, 100_000)
        written.result(PATIENCE_S)
    assert got == b"".join(buffers)


def test_nobody_reads_any_more(ends: Ends) -> None:
    os.close(ends.from_it)
    ends.from_it = -1
    with pytest.raises(ConnectionLostError, match="The connection ended: Broken pipe") as raised:
        ends.pipes.write([memoryview(b"x")])
    assert raised.value.how == "ended"


@pytest.mark.parametrize("what", ["read", "write"])
def test_close_wakes_who_waits_and_only_then_are_the_descriptors_free(ends: Ends, what: str) -> None:
    endless = [memoryview(bytes(10_000_000))]
    with ThreadPoolExecutor(1) as pool:
        act = (lambda: read(ends.pipes, 1, None)) if what == "read" else (lambda: ends.pipes.write(endless))
        waiting = pool.submit(act)
        while ends.pipes._users < 2:
            threading.Event().wait(0.01)
        for fd in ends.fds:
            os.fstat(fd)
        ends.pipes.close()
        with pytest.raises(ConnectionLostError, match="was closed here") as raised:
            waiting.result(PATIENCE_S)
    assert raised.value.how == "closed"
    for fd in ends.fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    ends.pipes.close()
    with pytest.raises(ConnectionLostError):
        read(ends.pipes, 1)
