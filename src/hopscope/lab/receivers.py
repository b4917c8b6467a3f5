# SPDX-License-Identifier: Apache-2.0
"""The receiving side of the traffic: servers that read in a known way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hopscope.lab.pace import Ended, Summary, Tally
from hopscope.lab.sockets import LOOK_EVERY_S, accept, bind, read_whole, send_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from hopscope.lab.pace import Budget
    from hopscope.lab.sockets import Address

Read = Callable[[], int]
"""One read: its length in bytes, 0 at the end of a stream; BlockingIOError when nothing came for a while."""

Reader = Callable[[socket.socket, int, Tally], "AbstractContextManager[Read]"]
"""Makes the reads of one socket from the socket, the size of the buffer in bytes, and the tally."""


@contextlib.contextmanager
def plain_reader(sock: socket.socket, size_bytes: int, _tally: Tally) -> Iterator[Read]:
    """Read with recv."""
    buffer = bytearray(size_bytes)
    yield lambda: sock.recv_into(buffer)


@contextlib.contextmanager
def peek_reader(sock: socket.socket, size_bytes: int, tally: Tally) -> Iterator[Read]:
    """Look with MSG_PEEK before each recv."""
    buffer = bytearray(size_bytes)

    def read() -> int:
        # The look at the end of a stream finds no message.
        tally.peeks += bool(sock.recv_into(buffer, 0, socket.MSG_PEEK))
        return sock.recv_into(buffer)

    yield read


@contextlib.contextmanager
def splice_reader(sock: socket.socket, size_bytes: int, _tally: Tally) -> Iterator[Read]:
    """Splice to a pipe, and from there to /dev/null; TCP only."""
    with contextlib.ExitStack() as stack:
        pipe_out, pipe_in = os.pipe()
        stack.callback(os.close, pipe_out)
        stack.callback(os.close, pipe_in)
        fcntl.fcntl(pipe_in, fcntl.F_SETPIPE_SZ, max(size_bytes, 65_536))
        sink = os.open("/dev/null", os.O_WRONLY)
        stack.callback(os.close, sink)

        def read() -> int:
            len_bytes = os.splice(sock.fileno(), pipe_in, size_bytes)
            left_bytes = len_bytes
            while left_bytes:
                left_bytes -= os.splice(pipe_out, sink, left_bytes)
            return len_bytes

        yield read


READERS: dict[str, Reader] = {"plain": plain_reader, "peek": peek_reader, "splice": splice_reader}


def tcp_sink(  # noqa: PLR0913 - each a fact of the workload, all by name
    address: Address,
    budget: Budget,
    *,
    ready: Callable[[int], None],
    read: Reader = plain_reader,
    size_bytes: int = 1 << 20,
    sleep_s: float = 0.0,
    connections: int = 1,
    rcvbuf_bytes: int | None = None,
) -> Summary:
    """Read connections, one after the other, each to its end.

    Parameters
    ----------
    address
        Numeric host, and port or 0.
    budget
        Reads and time.
    ready
        Called with the port as soon as clients can connect.
    read
        How to read.
    size_bytes
        Of the buffer.
    sleep_s
        Wait for data, then sleep as long, then read.
    connections
        How many to take.
    rcvbuf_bytes
        As for `sockets.bind`.

    Raises
    ------
    OSError
        The address cannot be had, or a connection breaks.
    """
    tally = Tally()
    ended = Ended.EOF
    with bind(address, socket.SOCK_STREAM, rcvbuf_bytes) as listener:
        ready(listener.getsockname()[1])
        budget.start()
        for _ in range(connections):
            sock = accept(listener, budget)
            if sock is None:
                return tally.summary(budget.over(tally.messages) or Ended.EOF)
            with sock, read(sock, size_bytes, tally) as read_once:
                ended = _read_all(sock, budget, tally, read_once, sleep_s)
    return tally.summary(ended)


def udp_sink(  # noqa: PLR0913 - each a fact of the workload, all by name
    address: Address,
    budget: Budget,
    *,
    ready: Callable[[int], None],
    read: Reader = plain_reader,
    size_bytes: int = 65_536,
    sleep_s: float = 0.0,
    rcvbuf_bytes: int | None = None,
) -> Summary:
    """Read datagrams until the budget is used up; parameters as for `tcp_sink`.

    Raises
    ------
    OSError
        The address cannot be had.
    """
    tally = Tally()
    with bind(address, socket.SOCK_DGRAM, rcvbuf_bytes) as sock, read(sock, size_bytes, tally) as read_once:
        ready(sock.getsockname()[1])
        budget.start()
        return tally.summary(_read_all(sock, budget, tally, read_once, sleep_s))


def tcp_echo(
    address: Address, budget: Budget, *, ready: Callable[[int], None], size_bytes: int, reply_bytes: int
) -> Summary:
    """Answer each request of one connection.

    Parameters
    ----------
    address, budget, ready
        As for `tcp_sink`.
    size_bytes, reply_bytes
        Of a request and of a reply.

    Raises
    ------
    OSError
        The address cannot be had, or the connection breaks.
    """
    tally = Tally()
    request = bytearray(size_bytes)
    reply = bytes(reply_bytes)
    with bind(address, socket.SOCK_STREAM) as listener:
        ready(listener.getsockname()[1])
        budget.start()
        sock = accept(listener, budget)
        if sock is None:
            return tally.summary(budget.over(0) or Ended.EOF)
        with sock:
            while (ended := budget.over(tally.messages)) is None:
                if not (read_whole(sock, request, budget) and send_whole(sock, reply, budget)):
                    ended = budget.over(tally.messages) or Ended.EOF
                    break
                tally.add(1, size_bytes)
    return tally.summary(ended)


def _read_all(sock: socket.socket, budget: Budget, tally: Tally, read_once: Read, sleep_s: float) -> Ended:
    is_stream = sock.type == socket.SOCK_STREAM
    while (ended := budget.over(tally.messages)) is None:
        if sleep_s and not _wait_and_sleep(sock, sleep_s):
            continue
        try:
            len_bytes = read_once()
        except BlockingIOError:
            continue
        if is_stream and not len_bytes:
            return Ended.EOF
        tally.add(1, len_bytes)
    return ended


def _wait_and_sleep(sock: socket.socket, sleep_s: float) -> bool:
    # A reader that slept first would find the next message late only by chance; this one is late every time.
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    if not poll.poll(LOOK_EVERY_S * 1e3):
        return False
    time.sleep(sleep_s)
    return True
