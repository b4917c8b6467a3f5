# SPDX-License-Identifier: Apache-2.0
"""The sending side of the traffic."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.lab._libc import libc
from hopscope.lab.pace import Ended, Summary, Tally
from hopscope.lab.sockets import connect_tcp, limit_blocking, read_whole, send_whole

if TYPE_CHECKING:
    from hopscope.lab.pace import Budget
    from hopscope.lab.sockets import Address

_FLOOD_BATCH = 64
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN)
_REFUSED = (errno.ENOBUFS, errno.ECONNREFUSED)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(_Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    # Nested as in C: the padding at the end of msghdr comes before len.
    _fields_ = (("hdr", _Msghdr), ("len", ctypes.c_uint))


def tcp_send(address: Address, budget: Budget, *, size_bytes: int) -> Summary:
    """Send messages on one connection, each by one system call where the socket takes it whole, then the end of stream.

    Parameters
    ----------
    address
        Numeric host and port.
    budget
        Messages, rate and time.
    size_bytes
        Of a message.

    Raises
    ------
    OSError
        The connection fails.
    """
    message = bytes(size_bytes)
    tally = Tally()
    with connect_tcp(address) as sock:
        budget.start()
        while (ended := budget.over(tally.messages)) is None:
            budget.wait_turn(tally.messages)
            if send_whole(sock, message, budget):
                tally.add(1, size_bytes)
    return tally.summary(ended)


def tcp_rr(address: Address, budget: Budget, *, size_bytes: int, reply_bytes: int) -> Summary:
    """Send a request and wait for its reply, again and again on one connection.

    Parameters
    ----------
    address, budget
        As for `tcp_send`.
    size_bytes, reply_bytes
        Of a request and of a reply, as the server was told.

    Raises
    ------
    OSError
        The connection fails.
    """
    message = bytes(size_bytes)
    buffer = bytearray(reply_bytes)
    tally = Tally()
    rtts_ns: list[int] = []
    with connect_tcp(address) as sock:
        budget.start()
        while (ended := budget.over(tally.messages)) is None:
            budget.wait_turn(tally.messages)
            start_ns = time.perf_counter_ns()
            if not (send_whole(sock, message, budget) and read_whole(sock, buffer, budget)):
                ended = budget.over(tally.messages) or Ended.EOF
                break
            rtts_ns.append(time.perf_counter_ns() - start_ns)
            tally.add(1, size_bytes)
    return _with_rtts(tally.summary(ended), sorted(rtts_ns))


def udp_send(address: Address, budget: Budget, *, size_bytes: int) -> Summary:
    """Send datagrams: at the budget's rate one by one, or in batches of sendmmsg as fast as it goes.

    Parameters
    ----------
    address, budget
        As for `tcp_send`.
    size_bytes
        Payload of a datagram.

    Raises
    ------
    OSError
        The address cannot be reached from here, or the datagram is too long.
    """
    tally = Tally()
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        limit_blocking(sock)
        batch = _Batch(1 if budget.rate_s is not None else _FLOOD_BATCH, size_bytes)
        budget.start()
        while (ended := budget.over(tally.messages)) is None:
            budget.wait_turn(tally.messages)
            wanted = batch.size if budget.count is None else min(batch.size, budget.count - tally.messages)
            sent = batch.send(sock, wanted)
            if sent:
                tally.add(sent, sent * size_bytes)
            else:
                tally.refused += 1
    return tally.summary(ended)


class _Batch:
    # Datagrams that are all alike, sent by one system call.

    def __init__(self, size: int, len_bytes: int) -> None:
        self.size = size
        self._payload = ctypes.create_string_buffer(max(len_bytes, 1))
        self._iovec = _Iovec(ctypes.addressof(self._payload), len_bytes)
        self._headers = (_Mmsghdr * size)()
        for header in self._headers:
            header.hdr.iov = ctypes.pointer(self._iovec)
            header.hdr.iovlen = 1

    def send(self, sock: socket.socket, wanted: int) -> int:
        # Returns how many were sent, 0 where the kernel refused for the moment.
        while True:
            sent = int(libc.sendmmsg(sock.fileno(), self._headers, wanted, 0))
            if sent >= 0:
                return sent
            number = ctypes.get_errno()
            if number in _REFUSED:
                return 0
            if number not in _TRY_AGAIN:
                raise OSError(number, os.strerror(number))


def _with_rtts(summary: Summary, rtts_ns: list[int]) -> Summary:
    if not rtts_ns:
        return summary
    p50_ns, p99_ns = (rtts_ns[int(len(rtts_ns) * share)] for share in (0.5, 0.99))
    return replace(summary, rtt_p50_ns=p50_ns, rtt_p99_ns=p99_ns, rtt_max_ns=rtts_ns[-1])
