# SPDX-License-Identifier: Apache-2.0
"""Real sockets in a lab, and what we read of them."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.namespaces import SocketReader
from hopscope.kernel.sockets.sock_diag import Request
from hopscope.kernel.sockets.table import TCP, UDP, UDPLITE, Sockets

if TYPE_CHECKING:
    from hopscope.lab import Lab, Namespace

EVERYTHING = [Request(TCP), Request(UDP), Request(UDPLITE)]


def read(*namespaces: Namespace, requests: list[Request] | None = None) -> Sockets:
    return SocketReader(requests or EVERYTHING, [each.inode for each in namespaces]).read()


def made(namespace: Namespace, family: int, kind: int, *bound: object, protocol: int = 0) -> socket.socket:
    def make() -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        if bound:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(bound)
        return sock

    return namespace.call(make)


def listening(namespace: Namespace, *address: object, family: int = socket.AF_INET, backlog: int = 5) -> socket.socket:
    sock = made(namespace, family, socket.SOCK_STREAM, *address)
    sock.listen(backlog)
    return sock


class Connected:
    """Connections of all kinds, quiet after some traffic."""

    def __init__(self, lab: Lab, stack: contextlib.ExitStack) -> None:
        self.sockets: list[socket.socket] = []
        v4 = listening(lab.server, "10.77.0.2", 4000)
        v6 = listening(lab.server, "fd77::2", 4001, family=socket.AF_INET6)
        dual = listening(lab.server, "::", 4002, family=socket.AF_INET6)
        for listener in (v4, v6, dual):
            stack.enter_context(listener)
        for listener, family, address in (
            (v4, socket.AF_INET, ("10.77.0.2", 4000)),
            (v6, socket.AF_INET6, ("fd77::2", 4001)),
            (dual, socket.AF_INET, ("10.77.0.2", 4002)),
        ):
            for control in (b"bbr", b"cubic"):
                client = stack.enter_context(made(lab.client, family, socket.SOCK_STREAM))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)
                client.connect(address)
                server = stack.enter_context(listener.accept()[0])
                exchange(client, server)
                self.sockets += [client, server]
        # Data that nobody reads, and a window that closes.
        stalled = stack.enter_context(made(lab.client, socket.AF_INET, socket.SOCK_STREAM))
        stalled.connect(("10.77.0.2", 4000))
        self.unread = stack.enter_context(v4.accept()[0])
        stalled.setblocking(False)  # noqa: FBT003
        with contextlib.suppress(BlockingIOError):
            while True:
                stalled.send(bytes(65536))


def exchange(client: socket.socket, server: socket.socket) -> None:
    for size in (1, 1000, 100_000):
        for sender, receiver in ((client, server), (server, client)):
            sending = threading.Thread(target=sender.sendall, args=(bytes(size),))
            sending.start()
            left = size
            while left:
                left -= len(receiver.recv(left))
            sending.join()


def by_name(sockets: Sockets) -> dict[tuple[str, str], int]:
    """Return the rows by local and peer end, of those that have a name of their own."""
    return {name: row for row, name in enumerate(zip(ends(sockets, "local"), ends(sockets, "peer"), strict=True))}
