# SPDX-License-Identifier: Apache-2.0
"""A host that is busy and well: all kinds of traffic, each at a pace that its reader keeps up with."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from hopscope.lab import Namespace, Workload
from tests.lab.measure import PATH_NAMES, NetworkPath, in_thread, way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

# Enough for what comes while a busy machine runs others than the reader.
_ROOM_BYTES = 4 << 20
_TRANSLATION = b"""
table ip provoke {
    chain out { type nat hook postrouting priority 100; oifname right masquerade; }
    chain through { type filter hook forward priority 0; ct state invalid drop; }
}
"""


@contextlib.contextmanager
def traffic(lab: Lab) -> Iterator[None]:
    """Have streams both ways, requests, datagrams, and short connections meanwhile, on the wire and on loopback."""
    with contextlib.ExitStack() as stack:
        wire, loopback = way(lab, "veth-4"), way(lab, "lo-6")
        _stream(stack, wire)
        _stream(stack, _reversed(lab, "veth-4"))
        _datagrams(stack, wire)
        _datagrams(stack, loopback)
        _requests(stack, way(lab, "veth-6"))
        _requests(stack, way(lab, "lo-4"))
        for name in PATH_NAMES:
            stack.enter_context(short_connections(way(lab, name)))
        yield


@contextlib.contextmanager
def bulk(lab: Lab) -> Iterator[None]:
    """Have streams meanwhile that are as fast as they can be, both ways at once."""
    with contextlib.ExitStack() as stack:
        for name in ("veth-4", "lo-6"):
            path = way(lab, name)
            for each in (path, _reversed(lab, name) if name.startswith("veth") else path):
                _stream(stack, each, paced=False)
        yield


@contextlib.contextmanager
def short_connections(path: NetworkPath) -> Iterator[None]:
    """Connect, ask, be answered and close again and again meanwhile."""
    ended = threading.Event()
    listener = path.receiver.call(socket.create_server, (path.host, 0), family=path.family, backlog=128)

    def serve() -> None:
        while True:
            sock, _ = listener.accept()
            with sock:
                if not (asked := sock.recv(100)):
                    return
                sock.send(asked)
                sock.recv(1)  # the end: who closes first remembers it for a minute, so the client shall

    def ask() -> None:
        while not ended.is_set():
            with path.sender.call(socket.create_connection, listener.getsockname()[:2]) as sock:
                sock.send(b"what?")
                assert sock.recv(100) == b"what?"
        path.sender.call(socket.create_connection, listener.getsockname()[:2]).close()

    with listener, in_thread(serve), in_thread(ask):
        try:
            yield
        finally:
            ended.set()


@contextlib.contextmanager
def routed() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """Have traffic through a router that translates addresses; yield the client, the router and the server."""
    with Namespace() as client, Namespace() as router, Namespace() as server, contextlib.ExitStack() as stack:
        for end, name, subnet in ((client, "left", "10.1.0"), (server, "right", "10.2.0")):
            for words in (
                ("link", "add", name, "type", "veth", "peer", "eth0", "netns", str(end.pid)),
                ("addr", "add", f"{subnet}.1/24", "dev", name),
                ("link", "set", name, "up"),
            ):
                router.run(["ip", *words], check=True)
            for words in (
                ("addr", "add", f"{subnet}.2/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("route", "add", "default", "via", f"{subnet}.1"),
            ):
                end.run(["ip", *words], check=True)
        router.sysctl("net.ipv4.ip_forward", 1)
        router.run(["nft", "-f", "-"], input=_TRANSLATION, check=True)
        path = NetworkPath(client, server, "10.2.0.2", "eth0")
        _stream(stack, path)
        _requests(stack, path)
        _datagrams(stack, path)
        stack.enter_context(short_connections(path))
        yield client, router, server


def _reversed(lab: Lab, name: str) -> NetworkPath:
    there = way(lab, name)
    return type(there)(there.receiver, there.sender, there.host[:-1] + "1", "client0")


def _stream(stack: contextlib.ExitStack, path: NetworkPath, *, paced: bool = True) -> None:
    sink = _server(stack, path, "tcp-sink")
    pace = ("--rate", 500, "--size", 65_536) if paced else ()
    _client(stack, path.sender, "tcp-send", path.host, sink.port, *pace)


def _requests(stack: contextlib.ExitStack, path: NetworkPath) -> None:
    echo = _server(stack, path, "tcp-echo")
    _client(stack, path.sender, "tcp-rr", path.host, echo.port)


def _datagrams(stack: contextlib.ExitStack, path: NetworkPath) -> None:
    sink = _server(stack, path, "udp-sink", "--rcvbuf", _ROOM_BYTES)
    _client(stack, path.sender, "udp-send", path.host, sink.port, "--rate", 500)


def _server(stack: contextlib.ExitStack, path: NetworkPath, name: str, *options: str | float) -> Workload:
    return stack.enter_context(Workload(path.receiver, name, "--bind", path.host, *options))


def _client(stack: contextlib.ExitStack, namespace: Namespace, *words: str | float) -> None:
    stack.enter_context(Workload(namespace, *words))
