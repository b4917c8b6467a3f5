# SPDX-License-Identifier: Apache-2.0
"""Work that the kernel can be given: each kind keeps it busy with something that a row of the categories is about.

A kind is a context: on entering it makes what it needs, and yields a function that has the kernel do a little of the
work. What it made ends with it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.lab.veth import SERVER_IPV4
from tests.lab.measure import limit, ping, tcp_pair, udp_pair, way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hopscope.lab import Lab, Namespace

    Act = Callable[[], object]
    Work = Callable[[Path], contextlib.AbstractContextManager[Act]]


MB = 1 << 20
# A veth is polled where it joins packets, and those of a sender that does not split them itself.
BY_POLL = {"tso": False, "gro": True}


@contextlib.contextmanager
def sink(receiver: socket.socket) -> Iterator[None]:
    """Read all that comes until the body ends."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while receiver.recv(MB):
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            receiver.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextlib.contextmanager
def datagrams(lab: Lab, len_bytes: int = 200, host: str = SERVER_IPV4) -> Iterator[Act]:
    with udp_pair(replace(way(lab, "veth-4"), host=host)) as (sender, receiver):
        yield lambda: ping(sender, receiver, 100, len_bytes)


@contextlib.contextmanager
def stream(lab: Lab) -> Iterator[Act]:
    with tcp_pair(way(lab, "veth-4")) as (sender, receiver), sink(receiver):
        yield lambda: sender.sendall(bytes(MB))
        sender.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def echoes(lab: Lab) -> Iterator[Act]:
    """Have a thread that sleeps until a datagram comes, and answers it."""
    with udp_pair(way(lab, "veth-4")) as (client, server):

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    words, peer = server.recvfrom(2000)
                    if not words:
                        return
                    server.sendto(words, peer)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        limit(client)
        yield lambda: ping(client, client, 100)
        client.send(b"")
        thread.join()


def index_of(namespace: Namespace, ifname: str) -> int:
    return namespace.call(socket.if_nametoindex, ifname)


def sh(namespace: Namespace, *commands: str) -> None:
    for command in commands:
        done = namespace.run(command.split(), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def nft(namespace: Namespace, rules: str) -> None:
    done = namespace.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def rules(*hooks: str, family: str = "inet", expression: str = "udp dport 9", device: str = "") -> str:
    """Return a table with a chain of many rules at each hook."""
    many = f"{expression} counter\n" * 40
    chains = (
        f"chain c{number} {{ type filter hook {hook} {device} priority 0;\n{many} }}\n"
        for number, hook in enumerate(hooks)
    )
    return f"table {family} t {{\n{''.join(chains)} }}\n"
