# SPDX-License-Identifier: Apache-2.0
"""The agent: runs the services that the other side of a channel asks for, each in a thread of its own."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from hopscope.agent.channel import Channel
from hopscope.agent.defaults import REMOTE_COMMAND
from hopscope.agent.handshake import Hello, ssh_connection
from hopscope.agent.message import printable
from hopscope.errors import ConnectionLostError, HopscopeError, PrivilegeError, StreamClosedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType, TracebackType
    from typing import Self

    from hopscope.agent.handshake import Connection
    from hopscope.agent.stream import Stream
    from hopscope.agent.transport import Transport

# The client says hello before it hears ours.
_HELLO_S: Final = 10.0
_END_S: Final = 0.8
_NAME_CHARACTERS: Final = 40


class Agent:
    """Serves one client; a context manager that ends all services.

    Parameters
    ----------
    transport
        To the client.
    services
        The module of each, which has ``serve(stream, request)`` and is imported when it is asked for.
    connection
        By which the client came, if that is known.

    Raises
    ------
    ConnectionLostError, FormatError, HopscopeError
        As from :class:`Channel`.
    """

    def __init__(
        self,
        transport: Transport,
        services: Mapping[str, str],
        connection: Connection | None = None,
    ) -> None:
        self._services = services
        self._threads: list[threading.Thread] = []
        self.channel = Channel(
            transport,
            "agent",
            "the client",
            accept=self._accept,
            ours=Hello(connection=connection),
            hello_s=_HELLO_S,
        )

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> list[str]:
        """End the connection and the services, and return the names of those that do not end soon."""
        until_s = time.monotonic() + _END_S
        self.channel.close()
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _accept(self, stream: Stream, service: str, request: dict[str, Any]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=self._run, args=(stream, service, request), name="hopscope-service", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _module(self, service: str) -> ModuleType:
        if service not in self._services:
            raise UsageError(f"This agent has no service {printable(service, _NAME_CHARACTERS)!r}")
        return importlib.import_module(self._services[service])

    def _run(self, stream: Stream, service: str, request: dict[str, Any]) -> None:
        with stream:
            try:
                self._module(service).serve(stream, request)
            except (StreamClosedError, ConnectionLostError):
                pass  # nobody wants it any more
            except PrivilegeError as error:
                stream.close(_through_ssh(error, stream))
            except HopscopeError as error:
                stream.close(error)
            except Exception as error:  # noqa: BLE001 - a bug of ours, which must not look like an end
                traceback.print_exc(file=sys.stderr)
                stream.close(HopscopeError(f"The service {service} failed: {type(error).__name__}: {error}"))


def _through_ssh(error: PrivilegeError, stream: Stream) -> PrivilegeError:
    # Who came by ssh gets rights otherwise than who sits there.
    if os.geteuid() == 0 or stream.connection is None or stream.connection != ssh_connection():
        return error
    return PrivilegeError(error.what, f"Log in there as root, or give --remote-command 'sudo -n {REMOTE_COMMAND}'")
