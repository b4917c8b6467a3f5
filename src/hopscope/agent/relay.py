# SPDX-License-Identifier: Apache-2.0
"""Each client of a listening agent has a process of its own, as each has that comes through ssh.

What a client makes its agent do, or crash, concerns no other client and not who holds the port and the key. When a
client is gone its process is, and with it all that it had in the kernel.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from hopscope.agent.local import AGENT, explain
from hopscope.agent.process import Process
from hopscope.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hopscope.agent.log import Log
    from hopscope.agent.tls_connection import TlsConnection
    from hopscope.agent.transport import Transport

_CHUNK_BYTES: Final = 1 << 18
_LINE_BYTES: Final = 4096


def serve_in_process(log: Log, argv: Sequence[str] = AGENT) -> Callable[[TlsConnection, str], None]:
    """Return what serves a client of a `Listener`: an agent of its own, whose standard error goes to the log."""

    def serve(connection: TlsConnection, _name: str) -> None:
        reading, writing = os.pipe()
        threading.Thread(target=_tell, args=(reading, connection.peer, log), daemon=True).start()
        try:
            agent = Process(argv, explain, stderr=writing, environ=_environ(connection))
        finally:
            os.close(writing)
        relay(connection, agent)

    return serve


def relay(client: Transport, agent: Transport) -> None:
    """Carry bytes both ways until one has ended, and end the other. What the agent has said last arrives."""

    def to_the_agent() -> None:
        if _carry(client, agent):
            agent.close()

    thread = threading.Thread(target=to_the_agent, name="hopscope-relay", daemon=True)
    thread.start()
    _carry(agent, client)
    client.close()
    agent.close()
    thread.join()


def _carry(source: Transport, sink: Transport) -> bool:
    """Carry bytes one way; return whether it was their source that ended."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    while True:
        try:
            count = source.read_into(buffer, None)
        except ConnectionLostError:
            return True
        if not count:
            return True
        try:
            sink.write([buffer[:count]])
        except ConnectionLostError:
            return False


def _environ(connection: TlsConnection) -> dict[str, str]:
    # As sshd says it to those whom it starts: an agent leaves its own connection out of what it measures.
    client, server = connection.sock.getpeername(), connection.sock.getsockname()
    return {**os.environ, "SSH_CONNECTION": f"{client[0]} {client[1]} {server[0]} {server[1]}"}


def _tell(reading: int, peer: str, log: Log) -> None:
    with os.fdopen(reading, "rb") as lines:
        while line := lines.readline(_LINE_BYTES):
            log.say(peer, line.decode(errors="replace").strip())
