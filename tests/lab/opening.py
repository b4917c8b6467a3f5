# SPDX-License-Identifier: Apache-2.0
"""Connections whose first data is in the SYN (TCP Fast Open), and such of MPTCP, between the ends of the lab."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.measure import limit, wait_acknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.lab import Lab

_TCP_FASTOPEN: Final = 23
_TCP_FASTOPEN_CONNECT: Final = 30
_MSG_FASTOPEN: Final = 0x20000000
_TCPI_OPT_SYN_DATA: Final = 32  # include/uapi/linux/tcp.h
_IPPROTO_MPTCP: Final = 262
_HOST: Final = "10.77.0.2"


@contextlib.contextmanager
def fast_open_listener(lab: Lab) -> Iterator[socket.socket]:
    """Yield a listener that takes data in a SYN; the client has its cookie already."""
    for namespace in (lab.client, lab.server):
        namespace.sysctl("net.ipv4.tcp_fastopen", 3)
    with lab.server.call(socket.create_server, (_HOST, 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN, 16)
        limit(listener)
        with lab.client.call(socket.socket) as first:
            limit(first)
            _open(first, listener.getsockname(), "sendto", b"cookie")
            listener.accept()[0].close()
        yield listener


def send_fast_open(
    lab: Lab, listener: socket.socket, how: str, messages: Sequence[bytes], *, late: bool = False
) -> None:
    """Connect, send these messages and read each, or all once they are there; the first one begins in the SYN."""
    with lab.client.call(socket.socket) as sender:
        limit(sender)
        _open(sender, listener.getsockname(), how, messages[0])
        with listener.accept()[0] as receiver:
            limit(receiver)
            if not late:
                receiver.recv(len(messages[0]), socket.MSG_WAITALL)
            options = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
            assert options & _TCPI_OPT_SYN_DATA, "the kernel put no data in the SYN"
            for message in messages[1:]:
                sender.send(message)
                if not late:
                    receiver.recv(len(message), socket.MSG_WAITALL)
            wait_acknowledged(sender)
            if late:
                receiver.recv(sum(map(len, messages)), socket.MSG_WAITALL)


def _open(sender: socket.socket, to: tuple[str, int], how: str, message: bytes) -> None:
    if how == "connect":
        sender.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN_CONNECT, 1)
        sender.connect(to)
        sender.send(message)
    else:
        flags = socket.MSG_DONTWAIT if how == "nonblocking" else 0
        assert sender.sendto(message, _MSG_FASTOPEN | flags, to) == len(message)


@contextlib.contextmanager
def mptcp_pair(lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of an MPTCP connection; skip the test where the kernel has none."""
    try:
        for namespace in (lab.client, lab.server):
            namespace.sysctl("net.mptcp.enabled", 1)
        listener = lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP)
    except OSError as error:
        pytest.skip(f"this kernel has no MPTCP: {error}")
    with listener, lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP) as sender:
        listener.bind((_HOST, 0))
        listener.listen()
        for each in (listener, sender):
            limit(each)
        sender.connect(listener.getsockname())
        with listener.accept()[0] as receiver:
            limit(receiver)
            yield sender, receiver
