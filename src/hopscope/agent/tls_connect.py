# SPDX-License-Identifier: Apache-2.0
"""The client's way to a listening agent."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from hopscope.agent.tls_connection import TlsConnection
from hopscope.agent.tls_listen import HANDSHAKE_S
from hopscope.errors import ConnectionLostError

if TYPE_CHECKING:
    import ssl

_CONNECT_S: Final = 10.0


def reach(host: str, port: int, context: ssl.SSLContext) -> TlsConnection:
    """Connect to an agent that listens.

    Parameters
    ----------
    host, port
        Where; the agent's certificate must be for this name or address.
    context
        From `client_context`.

    Raises
    ------
    ConnectionLostError
        Nobody answers there.
    RemoteError
        What answers is no agent, is not the one that is meant, or refuses us.
    """
    peer = f"The agent at {f'[{host}]' if ':' in host else host}:{port}"
    try:
        sock = socket.create_connection((host, port), timeout=_CONNECT_S)
    except (OSError, UnicodeError) as error:
        why = error.strerror or "no answer" if isinstance(error, OSError) else "that is no host name"
        raise ConnectionLostError(f"{peer} cannot be reached: {why}", how="ended") from error
    connection = TlsConnection(sock, context, peer, host)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.shake_hands(HANDSHAKE_S)
        connection.wait_for_welcome(HANDSHAKE_S)
    except BaseException:
        connection.close()
        raise
    return connection
