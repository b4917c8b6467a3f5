# SPDX-License-Identifier: Apache-2.0
"""Work for sockets and their protocols, for copying, memory, locks and waking."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

from hopscope.lab import Lab, Tbf
from tests.lab.measure import limit, ping, tcp_pair, udp_pair, way
from tests.verbs.cpu.work import BY_POLL, MB, datagrams, echoes, index_of, nft, rules, sink, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.verbs.cpu.work import Act


_SO_BUSY_POLL = 46
_IPPROTO_MPTCP = 262
_TCP_MD5SIG = 14


@contextlib.contextmanager
def plain_udp(_: Path) -> Iterator[Act]:
    with Lab() as lab, datagrams(lab) as act:
        yield act


@contextlib.contextmanager
def plain_tcp(_: Path) -> Iterator[Act]:
    with Lab() as lab, stream(lab) as act:
        yield act


@contextlib.contextmanager
def small_segments(_: Path) -> Iterator[Act]:
    with Lab() as lab, tcp_pair(way(lab, "veth-4")) as (sender, receiver):
        yield lambda: ping(sender, receiver, 100)


@contextlib.contextmanager
def sleeping_readers(_: Path) -> Iterator[Act]:
    with Lab() as lab, echoes(lab) as act:
        yield act


@contextlib.contextmanager
def busy_polling(_: Path) -> Iterator[Act]:
    with Lab(offloads=BY_POLL) as lab, udp_pair(way(lab, "veth-4")) as (sender, receiver):
        ping(sender, receiver, 1)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL, 50)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100))

        def wait() -> None:
            with contextlib.suppress(BlockingIOError):
                receiver.recv(1)

        yield wait


@contextlib.contextmanager
def reuseport(_: Path) -> Iterator[Act]:
    with Lab() as lab, contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(lab.server.call(socket.socket, type=socket.SOCK_DGRAM)) for _ in range(8)]
        port = 0
        for receiver in receivers:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            receiver.bind(("10.77.0.2", port))
            port = receiver.getsockname()[1]
        sender = stack.enter_context(lab.client.call(socket.socket, type=socket.SOCK_DGRAM))

        def send() -> None:
            for _ in range(100):
                sender.sendto(b"x", ("10.77.0.2", port))

        yield send


@contextlib.contextmanager
def mptcp(_: Path) -> Iterator[Act]:
    with (
        Lab() as lab,
        lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP) as listener,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP) as sender,
    ):
        listener.bind(("10.77.0.2", 0))
        listener.listen()
        sender.connect(listener.getsockname())
        with listener.accept()[0] as receiver:
            limit(receiver)
            yield lambda: ping(sender, receiver, 100)


@contextlib.contextmanager
def icmp(_: Path) -> Iterator[Act]:
    with (
        Lab() as lab,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw,
    ):
        limit(raw)
        request = struct.pack("!BBHHH", 8, 0, 0xF7FF - 7, 0, 7)

        def echo() -> None:
            for _ in range(100):
                raw.sendto(request, ("10.77.0.2", 0))
                raw.recv(200)

        yield echo


@contextlib.contextmanager
def tapped(_: Path) -> Iterator[Act]:
    with (
        Lab() as lab,
        lab.server.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)),
        datagrams(lab) as act,
    ):
        yield act


@contextlib.contextmanager
def af_xdp(_: Path) -> Iterator[Act]:
    """Let a bound AF_XDP socket look for something to send."""
    xdp_rings, sol_xdp = {"rx": 2, "tx": 3, "umem": 4, "fill": 5, "completion": 6}, 283
    memory = mmap.mmap(-1, 64 * 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with Lab() as lab, lab.client.call(socket.socket, 44, socket.SOCK_RAW) as xsk:
        xsk.setsockopt(sol_xdp, xdp_rings["umem"], struct.pack("=QQIIII", address, 64 * 4096, 4096, 0, 0, 0))
        for ring in ("fill", "completion", "tx"):
            xsk.setsockopt(sol_xdp, xdp_rings[ring], struct.pack("=I", 64))
        copy = 2
        name = struct.pack("=HHIII", 44, copy, index_of(lab.client, "client0"), 0, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.bind(xsk.fileno(), name, len(name)) == 0, os.strerror(ctypes.get_errno())

        def kick() -> None:
            for _ in range(100):
                libc.sendto(xsk.fileno(), None, 0, 0x40, None, 0)

        yield kick


@contextlib.contextmanager
def vsock(_: Path) -> Iterator[Act]:
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as sock:

        def send() -> None:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    sock.send(b"x")

        yield send


@contextlib.contextmanager
def netlink(_: Path) -> Iterator[Act]:
    """Tell a listener about each new flow, in the softirq that sees it."""
    with Lab() as lab, lab.server.call(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 12) as listener:
        listener.bind((0, 1 | 4))
        nft(lab.server, rules("prerouting", expression="ct state invalid"))

        def send() -> None:
            for _ in range(100):
                with lab.client.call(socket.socket, type=socket.SOCK_DGRAM) as sender:
                    sender.sendto(b"x", ("10.77.0.2", 9))
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.recv(MB, socket.MSG_DONTWAIT)

        yield send


@contextlib.contextmanager
def zero_copy(_: Path) -> Iterator[Act]:
    """Send pages of a file."""
    with Lab() as lab, tcp_pair(way(lab, "veth-4")) as (sender, receiver), sink(receiver):
        fd = os.memfd_create("pages")
        os.ftruncate(fd, MB)

        def send() -> None:
            offset = 0
            while offset < MB:
                offset += os.sendfile(sender.fileno(), fd, offset, MB - offset)

        yield send
        sender.shutdown(socket.SHUT_RDWR)
        os.close(fd)


@contextlib.contextmanager
def fresh_buffers(_: Path) -> Iterator[Act]:
    """Read into memory that has no pages yet."""
    with Lab() as lab, tcp_pair(way(lab, "veth-4")) as (sender, receiver):

        def move() -> None:
            sender.sendall(bytes(256 << 10))
            with mmap.mmap(-1, 256 << 10) as memory:
                receiver.recv_into(memory, 256 << 10, socket.MSG_WAITALL)

        yield move


@contextlib.contextmanager
def contended(_: Path) -> Iterator[Act]:
    """Send from two threads through one lock."""
    with Lab(tbf=Tbf(4_000_000_000, 1_000_000)) as lab, contextlib.ExitStack() as stack:
        ends = [stack.enter_context(udp_pair(way(lab, "veth-4"))) for _ in range(2)]

        def send(sender: socket.socket) -> None:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    sender.send(bytes(200))

        def both() -> None:
            threads = [threading.Thread(target=send, args=(sender,)) for sender, _ in ends]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        yield both


@contextlib.contextmanager
def signed(_: Path) -> Iterator[Act]:
    """Have every segment signed with MD5 (RFC 2385)."""

    def key(host: str, port: int) -> bytes:
        peer = struct.pack("!HH4s", socket.htons(socket.AF_INET), port, socket.inet_aton(host)).ljust(128, b"\0")
        return peer + struct.pack("=BBHI", 0, 0, 4, 0) + b"word".ljust(80, b"\0")

    with Lab() as lab, lab.server.call(socket.create_server, ("10.77.0.2", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG, key("10.77.0.1", 0))
        with lab.client.call(socket.socket) as sender:
            sender.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG, key("10.77.0.2", 0))
            sender.connect(listener.getsockname())
            with listener.accept()[0] as receiver:
                limit(receiver)
                yield lambda: ping(sender, receiver, 100)
