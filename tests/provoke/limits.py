# SPDX-License-Identifier: Apache-2.0
"""Limits that make connect() and accept() fail: no local port left, no file descriptor left."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.measure import TIMEOUT_S
from tests.provoke.common import RESET_ON_CLOSE, Provoked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_PORTS: Final = 100
_RANGE: Final = "40000 40099"
_DESCRIPTORS: Final = 24
# Accepts until it fails, and again for each line that it gets; says the number of the error.
_ACCEPTS: Final = f"""
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({_DESCRIPTORS}, 4096))
listener = socket.create_server(("{SERVER_IPV4}", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
listener.settimeout(0)
accepted = []
for line in sys.stdin:
    try:
        while True:
            accepted.append(listener.accept())
    except OSError as error:
        print(error.errno, flush=True)
"""


@contextlib.contextmanager
def ports_exhausted(lab: Lab, *, time_wait: bool = False) -> Iterator[Provoked]:
    """As many connections to one destination as there are local ports; a further one is refused by the kernel."""
    lab.client.sysctl("net.ipv4.ip_local_port_range", _RANGE)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(lab.server.call(socket.create_server, (SERVER_IPV4, 0), backlog=_PORTS))
        address = listener.getsockname()
        for _ in range(_PORTS):
            sock = stack.enter_context(lab.client.call(socket.create_connection, address, TIMEOUT_S))
            other = stack.enter_context(listener.accept()[0])
            if time_wait:
                sock.shutdown(socket.SHUT_WR)
                assert other.recv(1) == b""
                other.close()
                assert sock.recv(1) == b""
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        assert connect_error(lab, address) == errno.EADDRNOTAVAIL
        subject = f"{CLIENT_IPV4} > {SERVER_IPV4}:{address[1]} tcp"
        yield Provoked(lab.client, {}, {("socket", subject, "local_ports_used"): _PORTS}, subject)


@contextlib.contextmanager
def descriptors_exhausted(lab: Lab) -> Iterator[tuple[Provoked, subprocess.Popen[str]]]:
    """A process that accepts until it has no descriptor left, while further connections wait; yields the process."""
    argv = [sys.executable, "-c", _ACCEPTS]
    child = lab.server.popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child, contextlib.ExitStack() as stack:
        stack.callback(child.kill)
        port = int(child.stdout.readline())  # type: ignore[union-attr] # it is a pipe
        for _ in range(2 * _DESCRIPTORS):
            stack.enter_context(lab.client.call(socket.create_connection, (SERVER_IPV4, port), TIMEOUT_S))
        assert accept_error(child) == errno.EMFILE
        subject = f"{SERVER_IPV4}:{port} tcp listener"
        yield Provoked(lab.server, {}, {("socket", subject, "descriptors"): _DESCRIPTORS}, subject), child


@contextlib.contextmanager
def no_descriptor_left(lab: Lab) -> Iterator[Provoked]:
    """As :func:`descriptors_exhausted`, without the process."""
    with descriptors_exhausted(lab) as (provoked, _):
        yield provoked


def connect_error(lab: Lab, address: tuple[str, int]) -> int:
    """Return the error of a connection attempt; 0: none."""
    with lab.client.call(socket.socket) as sock:
        sock.settimeout(TIMEOUT_S)
        return lab.client.call(sock.connect_ex, address)


def accept_error(child: subprocess.Popen[str]) -> int:
    """Have the process accept what waits, and return the error that it ends with."""
    child.stdin.write("\n")  # type: ignore[union-attr] # pipes, both
    child.stdin.flush()  # type: ignore[union-attr]
    return int(child.stdout.readline())  # type: ignore[union-attr]
