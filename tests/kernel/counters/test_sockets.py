# SPDX-License-Identifier: Apache-2.0
"""The source `socket`: a few figures of all sockets, with known sockets."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab import Lab, Namespace
from hopscope.model.counters.sources import kind_of

if TYPE_CHECKING:
    from hopscope.model.counters.readings import Readings

pytestmark = pytest.mark.root


def read(namespace: Namespace) -> tuple[Readings, dict[tuple[str, str], int]]:
    with CounterReader([namespace.inode], ["socket"]) as reader:
        readings = reader.read()
    assert not readings.unread
    assert all(kind_of(key) == "gauge" for key in readings.numbers)
    return readings, {(key.subject, key.name): value for key, value in readings.numbers.items()}


def test_empty_namespace_has_zeros_and_no_listener() -> None:
    with Namespace() as namespace:
        _, found = read(namespace)
        low, high = map(int, namespace.call(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text).split())
        assert found.pop(("", "local_ports")) == high - low + 1
        assert set(found.values()) == {0}
        assert {subject for subject, _ in found} == {""}
        assert {("", "tcp.established"), ("", "tcp.close-wait"), ("", "udp.sockets")} <= found.keys()


def test_sockets_are_counted_and_full_queues_named() -> None:
    with Lab() as lab, contextlib.ExitStack() as stack:

        def opened(kind: int, port: int) -> socket.socket:
            sock = stack.enter_context(socket.socket(socket.AF_INET, kind))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("10.77.0.2", port))
            return sock

        listener = lab.server.call(opened, socket.SOCK_STREAM, 7000)
        listener.listen(3)
        clients = [stack.enter_context(lab.client.call(socket.socket)) for _ in range(2)]
        for client in clients:
            client.connect(("10.77.0.2", 7000))
        # Shares the port, and has nothing in its queue.
        lab.server.call(opened, socket.SOCK_STREAM, 7000).listen(9)
        udp = lab.server.call(opened, socket.SOCK_DGRAM, 7001)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender = stack.enter_context(lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM))
        sender.connect(("10.77.0.2", 7001))
        for _ in range(20):
            sender.send(bytes(1000))
        _, found = read(lab.server)
        assert found["", "tcp.listening"] == 2
        assert found["", "tcp.established"] == 2
        assert found["10.77.0.2:7000 tcp listener", "queue"] == 2
        assert found["10.77.0.2:7000 tcp listener", "backlog"] == 3
        assert found["", "udp.sockets"] == found["", "udp.receive_buffer_sockets"] == 1
        limit = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert found["10.77.0.2:7001 udp", "receive_limit_bytes"] == limit
        assert limit / 2 <= found["10.77.0.2:7001 udp", "receive_bytes"] == found["", "udp.receive_queue_bytes"]
        clients[0].close()
        accepted = stack.enter_context(listener.accept()[0])
        assert accepted.recv(1) == b""
        _, found = read(lab.server)
        assert found["", "tcp.close-wait"] == 1
        assert found["10.77.0.2:7000 tcp listener", "queue"] == 1
