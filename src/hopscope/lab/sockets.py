# SPDX-License-Identifier: Apache-2.0
"""Sockets for the traffic: blocking, but never for longer than `LOOK_EVERY_S`.

The kernel's own time-outs (SO_RCVTIMEO, SO_SNDTIMEO) are used, not Python's: with those every read would be a poll and
a non-blocking read, which is another path through the kernel than the one that is to be measured.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hopscope.lab.pace import Budget

Address = tuple[str, int]

LOOK_EVERY_S = 0.1
_TIMEVAL = struct.pack("ll", 0, int(LOOK_EVERY_S * 1e6))
_CONNECT_TIMEOUT_S = 5.0
_SO_RCVBUFFORCE = 33


def connect_tcp(address: Address) -> socket.socket:
    """Connect, without Nagle's algorithm.

    Raises
    ------
    OSError
        Refused, unreachable, or no answer within 5 s.
    """
    sock = socket.create_connection(address, _CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limit_blocking(sock)
    return sock


def bind(address: Address, kind: socket.SocketKind, rcvbuf_bytes: int | None = None) -> socket.socket:
    """Make a server's socket; a TCP one listens.

    Parameters
    ----------
    address
        Numeric host and port, 0 for a free one.
    kind
        SOCK_STREAM or SOCK_DGRAM.
    rcvbuf_bytes
        Receive buffer (the kernel doubles it). Needs CAP_NET_ADMIN.

    Raises
    ------
    OSError
        The address is taken or not of this host.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, kind)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        if rcvbuf_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, rcvbuf_bytes)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        limit_blocking(sock)
        stack.pop_all()
    return sock


def accept(listener: socket.socket, budget: Budget) -> socket.socket | None:
    """Wait for a connection; None when the budget is used up before."""
    while budget.over(0) is None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            limit_blocking(sock)
            return sock
    return None


def limit_blocking(sock: socket.socket) -> None:
    """Let no call on the socket block for longer than `LOOK_EVERY_S`; they then raise BlockingIOError."""
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL)


def send_whole(sock: socket.socket, message: bytes, budget: Budget) -> bool:
    """Send all of a message; False when the budget is used up before."""
    sent_bytes = _send(sock, message)
    while sent_bytes < len(message):
        if budget.over(0) is not None:
            return False
        sent_bytes += _send(sock, memoryview(message)[sent_bytes:])
    return True


def read_whole(sock: socket.socket, buffer: bytearray, budget: Budget) -> bool:
    """Fill the buffer; False when the stream ends or the budget is used up before."""
    view = memoryview(buffer)
    while view:
        try:
            len_bytes = sock.recv_into(view)
        except BlockingIOError:
            if budget.over(0) is not None:
                return False
            continue
        if not len_bytes:
            return False
        view = view[len_bytes:]
    return True


def _send(sock: socket.socket, data: bytes | memoryview) -> int:
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0
