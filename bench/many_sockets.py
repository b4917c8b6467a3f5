# SPDX-License-Identifier: Apache-2.0
"""Very many TCP connections over lo, held by processes of their own: ``python -m bench.many_sockets COUNT NUMBER``.

It prints a line when they are there and holds them until its input ends.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace

# Descriptors that a process needs for other things.
_OTHERS: Final = 64
_BACKLOG: Final = 4096
# So many that ports do not become scarce.
_ADDRESSES: Final = 200


def most_of_a_process() -> int:
    """Return how many sockets a process may have here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (hard if hard != resource.RLIM_INFINITY else 1 << 20) - _OTHERS


@contextmanager
def connected(namespace: Namespace, count: int) -> Iterator[None]:
    """Have so many TCP sockets in a namespace during the block, both ends counted; as many processes as it takes.

    Raises
    ------
    OSError
        A process could not make its part.
    """
    each = most_of_a_process() & ~1
    with contextlib.ExitStack() as stack:
        holders = []
        for number, start in enumerate(range(0, count, each)):
            argv = [sys.executable, "-m", "bench.many_sockets", str(min(each, count - start)), str(number)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            holder = stack.enter_context(namespace.popen(argv, **pipes))
            stack.callback(holder.kill)
            holders.append(holder)
        for holder in holders:
            if holder.stdout is None or holder.stdout.readline() != b"ready\n":
                raise OSError(0, "the sockets could not be made")
        yield


def make(count: int, number: int) -> list[socket.socket]:
    """Return both ends of connections, half as many as `count`; `number` tells their port."""
    found = []
    with socket.create_server(("127.0.0.1", 10_000 + number), backlog=_BACKLOG) as listener:
        for index in range(count // 2):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind((f"127.0.{number + 1}.{1 + index % _ADDRESSES}", 0))
            client.connect(listener.getsockname())
            found += [client, listener.accept()[0]]
    return found


def main(count: int, number: int) -> None:
    """Make the sockets and hold them until the input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = make(count, number)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    for sock in held:
        sock.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
