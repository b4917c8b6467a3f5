# SPDX-License-Identifier: Apache-2.0
"""Both ends of a TLS connection in this process, and a listener that echoes."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import TYPE_CHECKING

from hopscope.agent.allow import AllowList
from hopscope.agent.log import Log
from hopscope.agent.tls import client_context, server_context
from hopscope.agent.tls_connection import TlsConnection
from hopscope.agent.tls_listen import Listener, listen
from hopscope.errors import ConnectionLostError
from tests.agent.certificates import LO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.agent.tls import TlsFiles


@contextlib.contextmanager
def connected(
    agent: TlsFiles, client: TlsFiles, ends: tuple[socket.socket, socket.socket] | None = None
) -> Iterator[tuple[TlsConnection, TlsConnection]]:
    """Yield the agent's and the client's connection, which have shaken hands."""
    there, here = ends or socket.socketpair()
    server = TlsConnection(there, server_context(agent), "the client")
    mine = TlsConnection(here, client_context(client), "the agent", LO)
    thread = threading.Thread(target=server.shake_hands, args=(30.0,))
    thread.start()
    try:
        mine.shake_hands(30.0)
        thread.join()
        yield server, mine
    finally:
        mine.close()
        thread.join()
        server.close()


def receive(connection: TlsConnection, count: int) -> bytes:
    """Wait for so many bytes, or the end."""
    buffer = memoryview(bytearray(count))
    filled = 0
    while filled < count and (got := connection.read_into(buffer[filled:], 30.0)):
        filled += got
    return bytes(buffer[:filled])


def echo(connection: TlsConnection, _name: str) -> None:
    buffer = memoryview(bytearray(1 << 16))
    with contextlib.suppress(ConnectionLostError):
        while count := connection.read_into(buffer, None):
            connection.write([buffer[:count]])


class Listening:
    """A listener in a thread, and what it has logged."""

    def __init__(
        self, files: TlsFiles, allowed: Callable[[], AllowList], serve: Callable[[TlsConnection, str], None] = echo
    ) -> None:
        self._out = io.StringIO()
        self.listener = Listener(listen(LO, 0), server_context(files), allowed, serve, Log(self._out))
        self.port: int = self.listener.sock.getsockname()[1]
        self._thread = threading.Thread(target=self.listener.run)
        self._thread.start()

    def log(self) -> list[str]:
        """Return its lines without their time."""
        return [line.partition(" UTC ")[2] for line in self._out.getvalue().splitlines()]

    def close(self) -> None:
        self.listener.close()
        self._thread.join()


def only_oncall() -> AllowList:
    return AllowList.of(["oncall"])
