# SPDX-License-Identifier: Apache-2.0
"""Traffic of known kinds in namespaces of its own, which can be held: some 1,000 packets a second."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

from tests.lab.measure import ping, udp_pair, way

if TYPE_CHECKING:
    from types import TracebackType

    from hopscope.lab import Lab

_PAUSE_S: Final = 0.05
_READ: Final = 20
_DROPPED: Final = 5
_SIZE: Final = 100


class Traffic:
    """A turn each 50 ms: datagrams that are read, a new connection with a message, and datagrams that are dropped.

    Of the dropped ones, one half goes to a port where nobody listens, and the other to a socket that is full.

    Attributes
    ----------
    turns
        How many there were.
    """

    def __init__(self, lab: Lab) -> None:
        self._stack = contextlib.ExitStack()
        path = way(lab, "veth-4")
        enter = self._stack.enter_context
        self._pair = enter(udp_pair(path))
        self._nobody, receiver = enter(udp_pair(path))
        receiver.close()
        self._full, receiver = enter(udp_pair(path))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that the kernel gives
        self._lab = lab
        self._listener = enter(lab.server.call(socket.create_server, (path.host, 0)))
        self._may_go, self._over, self._rests = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.turns = 0

    def __enter__(self) -> Self:
        """Begin, held."""
        self._rests.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._over.set()
        self._may_go.set()
        self._thread.join()
        self._stack.close()

    def go(self) -> None:
        """Let it go on."""
        self._rests.clear()
        self._may_go.set()

    def hold(self) -> None:
        """Hold it; no turn is under way afterwards."""
        self._may_go.clear()
        self._rests.wait()

    def _run(self) -> None:
        while not self._over.wait(_PAUSE_S):
            if not self._may_go.is_set():
                self._rests.set()
                self._may_go.wait()
                continue
            self._turn()
            self.turns += 1
        self._rests.set()

    def _turn(self) -> None:
        ping(*self._pair, _READ, _SIZE)
        for _ in range(_DROPPED):
            self._full.send(bytes(_SIZE))
            with contextlib.suppress(ConnectionRefusedError):  # as ICMP has said of the one before
                self._nobody.send(bytes(_SIZE))
        address = self._listener.getsockname()
        with self._lab.client.call(socket.create_connection, address) as ours, self._listener.accept()[0] as theirs:
            ours.sendall(bytes(_SIZE))
            theirs.recv(_SIZE, socket.MSG_WAITALL)
