# SPDX-License-Identifier: Apache-2.0
"""The agent's service ``subscribe``: what ``hopscope serve --socket`` of this host serves, for who came to the agent.

The client does not say which socket: an agent opens nothing that its client names. Whoever may use the agent gets what
the agent's user may subscribe to.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import HopscopeError
from hopscope.live.subscribing import SOCKET, subscribed
from hopscope.verbs.serve.request import parse_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.agent.handshake import Connection
    from hopscope.agent.stream import Stream

# Names another socket, in the agent's environment.
VARIABLE: Final = "HOPSCOPE_SOCKET"
_CHUNK_BYTES: Final = 1 << 18


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Send the server's first line as a message, and then all that it sends, until either side ends it.

    Raises
    ------
    UsageError
        Nobody serves here, or what is asked for is wrong.
    HopscopeError
        The agent's user may not subscribe, or what is asked for cannot be recorded.
    """
    served = subscribed(os.environ.get(VARIABLE, SOCKET), without_own(request, stream.connection))
    with served.line as line, served.file as file:
        stream.send(served.head)
        threading.Thread(target=_end_with, args=(stream, line), name="hopscope-subscriber", daemon=True).start()
        while data := file.read1(_CHUNK_BYTES):
            stream.send_block({}, [data])


def without_own(request: Mapping[str, Any], connection: Connection | None) -> dict[str, Any]:
    """Return the request without the packets of the connection that events go through, which would be more events.

    Only where flows are looked at anyway: else there are few events of each packet that carries many of them.

    Raises
    ------
    UsageError
        It is no request.
    """
    asked = parse_request(json.dumps(request).encode())
    if connection is None or not asked.needs_lifetimes:
        return dict(request)
    ends = (
        f"{name} == {value}"
        for name, values in (
            ("port", (connection.client_port, connection.server_port)),
            ("address", (connection.client, connection.server)),
        )
        for value in dict.fromkeys(values)
    )
    own = f"not ({' and '.join(ends)})"
    return {**request, "where": f"({asked.where}) and {own}" if asked.where else own}


def _end_with(stream: Stream, line: socket.socket) -> None:
    """Wait until the client wants no more, and have the server know."""
    with contextlib.suppress(HopscopeError):  # it is gone
        stream.receive()
    if line.fileno() >= 0:
        line.shutdown(socket.SHUT_RDWR)
