# SPDX-License-Identifier: Apache-2.0
"""An agent that waits for clients: mutual TLS 1.3, an allow-list, and nobody who can keep the others out.

Each connection has a thread, and it is one of two kinds: a stranger, whose handshake is short and who gives way to
newer ones when there are many, or a client that was let in, of whom there are few.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hopscope.agent.allow import described
from hopscope.agent.tls_connection import TlsConnection
from hopscope.errors import HopscopeError, UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from hopscope.agent.allow import AllowList
    from hopscope.agent.log import Log

MOST_CLIENTS: Final = 16
MOST_STRANGERS: Final = 64
HANDSHAKE_S: Final = 10.0
_LINGER_S: Final = 1.0
_END_S: Final = 5.0
_OUT_OF_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass
class Listener:
    """Lets clients in and hands them over.

    Parameters
    ----------
    sock
        Listens.
    context
        From `server_context`.
    allowed
        Who may come in; asked for each client, so that a list in a file may change.
    serve
        Called with each client's connection in a thread of its own, and its name; ends when the connection does.
    log
        Where it is said who came, and who was turned away and why.
    """

    sock: socket.socket
    context: ssl.SSLContext
    allowed: Callable[[], AllowList]
    serve: Callable[[TlsConnection, str], None]
    log: Log
    _strangers: dict[TlsConnection, None] = field(default_factory=dict, init=False)  # oldest first
    _clients: dict[TlsConnection, None] = field(default_factory=dict, init=False)
    _threads: set[threading.Thread] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _closed: bool = field(default=False, init=False)

    def run(self) -> None:
        """Accept connections until `close`."""
        while not self._closed:
            try:
                sock, address = self.sock.accept()
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self.log.say("", f"No connection can be accepted: {error.strerror}")
                    time.sleep(_LINGER_S)
                continue  # the connection is gone already, or we are closed
            self._receive(sock, shown_address(address))

    def close(self) -> None:
        """Accept no more, close every connection, and wait for those who serve them."""
        with self._lock:
            self._closed = True
            connections, threads = [*self._strangers, *self._clients], list(self._threads)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes accept
        for connection in connections:
            connection.close()
        deadline_s = time.monotonic() + _END_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self.sock.close()

    def _receive(self, sock: socket.socket, peer: str) -> None:
        connection = TlsConnection(sock, self.context, peer)
        thread = threading.Thread(target=self._meet, args=(connection,), name=f"hopscope-{peer}", daemon=True)
        with self._lock:
            if self._closed:  # close() has not seen this one, and waits for nobody who comes later
                sock.close()
                return
            # A genuine handshake is done in two round trips: who is still at it when so many have come after, is none.
            oldest = next(iter(self._strangers)) if len(self._strangers) >= MOST_STRANGERS else None
            self._strangers[connection] = None
            try:
                thread.start()
            except RuntimeError:  # no more threads
                starts = False
            else:
                starts = True
                self._threads.add(thread)  # before it can end, which takes the lock
        if oldest:
            self._part(oldest)
        if not starts:
            self._part(connection)

    def _meet(self, connection: TlsConnection) -> None:
        peer = connection.peer
        try:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.shake_hands(HANDSHAKE_S)
            name = self._let_in(connection)
            if name:
                self.log.say(peer, f"{name} is connected")
                self.serve(connection, name)
                self.log.say(peer, f"{name} has disconnected")
        except (HopscopeError, OSError) as error:
            self.log.say("", str(error))
            connection.linger(_LINGER_S)
        finally:
            self._part(connection)
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _let_in(self, connection: TlsConnection) -> str:
        """Return the client's name if it may come in, else tell it why not and return an empty one."""
        certificate, der = connection.certificate()
        who = described(certificate, der)
        try:
            admitted = self.allowed().admits(certificate, der)
        except UsageError as error:
            self.log.say("", str(error))
            admitted = False
        if not admitted:
            self._refuse(connection, who, "it is not on the list of clients (--allow)")
            return ""
        with self._lock:
            full = len(self._clients) >= MOST_CLIENTS
            if not full:
                self._strangers.pop(connection, None)
                self._clients[connection] = None
        if full:
            self._refuse(connection, who, f"{MOST_CLIENTS} clients are connected already")
            return ""
        connection.welcome()
        return who

    def _refuse(self, connection: TlsConnection, who: str, why: str) -> None:
        self.log.say(connection.peer, f"{who} is refused: {why}")
        connection.refuse(why)
        connection.linger(_LINGER_S)

    def _part(self, connection: TlsConnection) -> None:
        with self._lock:
            self._strangers.pop(connection, None)
            self._clients.pop(connection, None)
        connection.close()


def address_of(where: str) -> tuple[str, int]:
    """Return host and port of what ``--listen`` says.

    Raises
    ------
    UsageError
        It is no address and port.
    """
    try:
        parts = urlsplit(f"//{where}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or parts.netloc != where or "@" in where:
        raise UsageError(
            f"--listen {where}: not an address and port", "Give ADDRESS:PORT, with an IPv6 address in brackets"
        )
    return host, port


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this host.

    Raises
    ------
    UsageError
        It can't.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=MOST_STRANGERS)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"Cannot listen at {host}:{port}: another program does so already",
                f"Give another port, or end that program (ss -ltnp 'sport = {port}' shows it)",
            ) from error
        why = error.strerror if isinstance(error, OSError) else "this is not a host name"
        raise UsageError(f"Cannot listen at {host}:{port}: {why}", "Give an address of this host") from error


def shown_address(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Return a socket's address as it is written in a URL."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
