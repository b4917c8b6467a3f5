# SPDX-License-Identifier: Apache-2.0
"""A man in the middle: a TCP proxy in a namespace, that does to the bytes what a test tells it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Namespace

    Way = Literal["to the agent", "to the client"]
    Meddle = Callable[[bytes, Way, int], bytes]

LO = "127.0.0.1"


class Meddler:
    """Carries each connection on to a port, through `meddle`.

    Attributes
    ----------
    port
        Where it waits for clients.
    meddle
        Called with each chunk, its way, and how many bytes went that way before; returns what goes on. A connection has
        what was set when it began, or one that is ending would get what is meant for the next.
    """

    def __init__(self, namespace: Namespace, to_port: int) -> None:
        self._namespace, self._to_port = namespace, to_port
        self._listening = namespace.call(socket.create_server, (LO, 0))
        self.port: int = self._listening.getsockname()[1]
        self.meddle: Meddle = lambda data, _way, _before: data
        self._socks: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End all connections, both ways."""
        for sock in self._socks:
            with contextlib.suppress(OSError):  # it has ended
                sock.shutdown(socket.SHUT_RDWR)

    def half_close(self) -> None:
        """Tell clients that agents say no more; what clients say still arrives."""
        for sock in self._socks[::2]:
            with contextlib.suppress(OSError):  # it has ended
                sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End it, and all connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for sock in (self._listening, *self._socks):
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                agent = self._namespace.call(socket.create_connection, (LO, self._to_port))
                self._socks += [client, agent]
                for one, other, way in ((client, agent, "to the agent"), (agent, client, "to the client")):
                    thread = threading.Thread(target=self._carry, args=(one, other, way, self.meddle))
                    self._threads.append(thread)
                    thread.start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket, way: Way, meddle: Meddle) -> None:
        before = 0
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 14):
                other.sendall(meddle(data, way, before))
                before += len(data)
            other.shutdown(socket.SHUT_WR)
