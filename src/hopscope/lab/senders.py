# SPDX-License-Identifier: Apache-2.0
"""The sending side of the traffic."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.lab._libc import Iovec, Mmsghdr, libc
from hopscope.lab.pace import Ended, Summary, Tally
from hopscope.lab.sockets import connect_tcp, limit_blocking, read_whole, send_whole
from hopscope.lab.stamps import Stamps

if TYPE_CHECKING:
    from hopscope.lab.pace import Budget
    from hopscope.lab.sockets import Address

_FLOOD_BATCH = 64
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN)
_REFUSED = (errno.ENOBUFS, errno.ECONNREFUSED)
# include/uapi/linux/sockios.h
_SIOCOUTQNSD = 0x894B
_LOOK_AGAIN_S = 0.001


def tcp_send(address: Address, budget: Budget, *, size_bytes: int, stamped: bool = False) -> Summary:
    """Send messages on one connection, each by one system call where the socket takes it whole, then the end of stream.

    At a rate, each waits until the one before has left: TCP would put them into one packet, were their turns late.

    Parameters
    ----------
    address
        Numeric host and port.
    budget
        Messages, rate and time.
    size_bytes
        Of a message.
    stamped
        Ask the kernel for time stamps of every message (SO_TIMESTAMPING), and read them.

    Raises
    ------
    OSError
        The connection fails.
    """
    message = bytes(size_bytes)
    tally = Tally()
    with connect_tcp(address) as sock:
        stamps = Stamps(sock) if stamped else None
        budget.start()
        while (ended := budget.over(tally.messages)) is None:
            budget.wait_turn(tally.messages)
            if budget.rate_s is not None:
                _wait_left(sock, budget, tally.messages)
            if send_whole(sock, message, budget):
                tally.add(1, size_bytes)
                if stamps:
                    stamps.message()
        return replace(tally.summary(ended), stamps=stamps.finish() if stamps else 0)


def tcp_rr(address: Address, budget: Budget, *, size_bytes: int, reply_bytes: int, stamped: bool = False) -> Summary:
    """Send a request and wait for its reply, again and again on one connection.

    Parameters
    ----------
    address, budget, stamped
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
        stamps = Stamps(sock) if stamped else None
        budget.start()
        while (ended := budget.over(tally.messages)) is None:
            budget.wait_turn(tally.messages)
            start_ns = time.perf_counter_ns()
            if not (send_whole(sock, message, budget) and read_whole(sock, buffer, budget)):
                ended = budget.over(tally.messages) or Ended.EOF
                break
            rtts_ns.append(time.perf_counter_ns() - start_ns)
            tally.add(1, size_bytes)
            if stamps:
                stamps.message()
        summary = replace(tally.summary(ended), stamps=stamps.finish() if stamps else 0)
    return _with_rtts(summary, sorted(rtts_ns))


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


def _wait_left(sock: socket.socket, budget: Budget, messages: int) -> None:
    while struct.unpack("i", fcntl.ioctl(sock, _SIOCOUTQNSD, bytes(4)))[0] and budget.over(messages) is None:
        time.sleep(_LOOK_AGAIN_S)


class _Batch:
    # Datagrams that are all alike, sent by one system call.

    def __init__(self, size: int, len_bytes: int) -> None:
        self.size = size
        self._payload = ctypes.create_string_buffer(max(len_bytes, 1))
        self._iovec = Iovec(ctypes.addressof(self._payload), len_bytes)
        self._headers = (Mmsghdr * size)()
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
