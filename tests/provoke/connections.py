# SPDX-License-Identifier: Apache-2.0
"""Connections that lose segments, wait for their reader, or end before their time."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

from hopscope.lab import Tbf, shape
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IPV4
from tests.lab.measure import in_thread, ping, tcp_pair, way
from tests.lab.rawtcp import RawTcp, Tun
from tests.provoke.common import RESET_ON_CLOSE, TIMES, Provoked, connected, rules
from tests.provoke.evidence import nstat
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_TCP_USER_TIMEOUT: Final = 18
_SEVERAL: Final = 11


@contextlib.contextmanager
def some_lost(lab: Lab) -> Iterator[Provoked]:
    """One segment of 20 is lost on its way."""
    with connected(lab) as (sender, receiver):
        port = receiver.getsockname()[1]
        with (
            rules(lab.server, "input", f"tcp dport {port} numgen inc mod 20 == 3 counter drop"),
            in_thread(lambda: _read(receiver, 3_000_000)),
        ):
            sender.sendall(bytes(3_000_000))
        yield Provoked(lab.client)


@contextlib.contextmanager
def no_answer(lab: Lab) -> Iterator[Provoked]:
    """Nothing arrives any more on eleven connections: it is sent again by a timer, later each time."""
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(connected(lab))[0] for _ in range(_SEVERAL)]
        with rules(lab.server, "input", "meta l4proto tcp drop"):
            for sender in senders:
                sender.send(bytes(100))
            eventually(lambda: nstat(lab.client)["TcpExtTCPTimeouts"] >= 2 * len(senders))
            yield Provoked(lab.client)


@contextlib.contextmanager
def black_hole(lab: Lab, *, sacked: bool = False) -> Iterator[Provoked]:
    """Packets above 1,200 bytes do not arrive, and no ICMP message says so.

    Either the same connection gets a smaller segment through, or another one to the same address does.
    """
    with (
        connected(lab) as (sender, _),
        connected(lab) as other,
        rules(lab.server, "input", "meta length > 1200 drop"),
    ):
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.send(bytes(1448))
        if sacked:
            sender.send(bytes(100))
        eventually(lambda: nstat(lab.client)["TcpExtTCPTimeouts"] >= 4)
        if not sacked:
            assert ping(*other, 1) == 1
        yield Provoked(lab.client)


@contextlib.contextmanager
def syn_lost(lab: Lab) -> Iterator[Provoked]:
    """Requests for a connection are not answered: each is sent twice, and in the end given up."""
    lab.client.sysctl("net.ipv4.tcp_syn_linear_timeouts", 0)
    lab.client.sysctl("net.ipv4.tcp_syn_retries", 1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(rules(lab.server, "input", "tcp dport 7 drop"))
        for _ in range(TIMES):
            sock = stack.enter_context(lab.client.call(socket.socket))
            sock.setblocking(False)  # noqa: FBT003 - Python's own
            sock.connect_ex((SERVER_IPV4, 7))
        eventually(lambda: nstat(lab.client)["TcpExtTCPSynRetrans"] >= TIMES)
        yield Provoked(lab.client, {"TcpExtTCPSynRetrans": TIMES, "TcpRetransSegs": TIMES, "TcpExtTCPTimeouts": TIMES})


@contextlib.contextmanager
def reader_stopped(lab: Lab) -> Iterator[Provoked]:
    """Eleven readers do not read, their windows close, and the senders ask again and again whether they are open."""
    lab.server.sysctl("net.ipv4.tcp_rmem", "4096 16384 16384")
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(connected(lab)) for _ in range(_SEVERAL)]
        for sender, _ in pairs:
            sender.setblocking(False)  # noqa: FBT003 - Python's own
            with contextlib.suppress(BlockingIOError):
                while True:
                    sender.send(bytes(65_536))
        eventually(lambda: nstat(lab.client)["TcpExtTCPWinProbe"] >= 2 * _SEVERAL)
        yield Provoked(lab.client, subject="{}:{}".format(*pairs[0][1].getsockname()))


@contextlib.contextmanager
def closed_window(lab: Lab) -> Iterator[Provoked]:
    """As :func:`reader_stopped`, seen from the host that does not read."""
    with reader_stopped(lab):
        yield Provoked(lab.server, {"TcpExtTCPToZeroWindowAdv": _SEVERAL})


@contextlib.contextmanager
def small_send_buffer(lab: Lab) -> Iterator[Provoked]:
    """A sender could send more at once than its buffer holds."""
    shape(lab.client, CLIENT_IFNAME, Tbf(rate_bit_s=10_000_000, burst_bytes=20_000))
    with connected(lab) as (sender, receiver):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with in_thread(lambda: _read(receiver, 500_000)):
            sender.sendall(bytes(500_000))
        yield Provoked(lab.client)


@contextlib.contextmanager
def receive_queue_pruned(lab: Lab) -> Iterator[Provoked]:
    """Small segments behind a gap use up a small buffer: the kernel packs them together, then throws some away."""
    with (
        lab.server.call(socket.create_server, ("0.0.0.0", 0)) as listener,  # noqa: S104 - in a namespace of its own
        Tun(lab.server) as tun,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        with RawTcp(tun, listener.getsockname()[1]) as raw, listener.accept()[0]:
            for number in range(400):
                raw.send_segment(2 + 2 * number, b"x")
            yield Provoked(lab.server)


@contextlib.contextmanager
def sent_twice(lab: Lab) -> Iterator[Provoked]:
    """Each segment arrives twice: the second is acknowledged as a duplicate."""
    with (
        rules(lab.client, "output", f"tcp flags & psh == psh dup to {SERVER_IPV4} device {CLIENT_IFNAME}", family="ip"),
        connected(lab) as (sender, receiver),
    ):
        assert ping(sender, receiver, TIMES) == TIMES
        yield Provoked(lab.server, {"TcpExtTCPDSACKOldSent": TIMES})


@contextlib.contextmanager
def out_of_order(lab: Lab) -> Iterator[Provoked]:
    """Every other segment comes before the one that it follows."""
    with (
        lab.server.call(socket.create_server, ("0.0.0.0", 0)) as listener,  # noqa: S104 - in a namespace of its own
        Tun(lab.server) as tun,
        RawTcp(tun, listener.getsockname()[1]) as raw,
        listener.accept()[0],
    ):
        for number in range(TIMES):
            raw.send_segment(2 * number + 1, b"x")
            raw.send_segment(2 * number, b"x")
        yield Provoked(lab.server, {"TcpExtTCPOFOQueue": TIMES})


@contextlib.contextmanager
def reset_by_us(lab: Lab) -> Iterator[Provoked]:
    """Connections that an application closes with a reset, though they were well."""
    for _ in range(TIMES):
        with tcp_pair(way(lab, "veth-4")) as (sender, _):
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            sender.close()
    yield Provoked(lab.client, {"TcpOutRsts": TIMES})


@contextlib.contextmanager
def reset_by_others(lab: Lab) -> Iterator[Provoked]:
    """As :func:`reset_by_us`, seen from the other end."""
    with reset_by_us(lab):
        yield Provoked(lab.server, {"TcpEstabResets": TIMES})


@contextlib.contextmanager
def unread_data_thrown_away(lab: Lab) -> Iterator[Provoked]:
    """Connections are closed with data that nobody read: that is a reset, and what was sent is lost."""
    for _ in range(TIMES):
        with tcp_pair(way(lab, "veth-4")) as (sender, receiver):
            sender.send(b"x")
            receiver.recv(1, socket.MSG_PEEK)
            receiver.close()
    yield Provoked(lab.server, {"TcpExtTCPAbortOnClose": TIMES, "TcpOutRsts": TIMES})


@contextlib.contextmanager
def never_closed(lab: Lab) -> Iterator[Provoked]:
    """An application does not close connections that the other side has long ended."""
    with contextlib.ExitStack() as stack:
        for _ in range(TIMES):
            sender, receiver = stack.enter_context(connected(lab))
            sender.shutdown(socket.SHUT_WR)
            assert receiver.recv(1) == b""
        yield Provoked(lab.server, {"TcpPassiveOpens": TIMES})


@contextlib.contextmanager
def peer_gone(lab: Lab) -> Iterator[Provoked]:
    """The other end is there no more: connections with something to send give up, seven of them."""
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(connected(lab))[0] for _ in range(7)]
        stack.enter_context(rules(lab.server, "input", "meta l4proto tcp drop"))
        for sender in senders:
            sender.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, 300)
            sender.send(b"x")
        eventually(lambda: nstat(lab.client)["TcpExtTCPAbortOnTimeout"] >= len(senders))
        yield Provoked(lab.client, {"TcpExtTCPAbortOnTimeout": len(senders)})


@contextlib.contextmanager
def time_waits_full(lab: Lab) -> Iterator[Provoked]:
    """More connections were closed lately than may be remembered."""
    kept = 7
    lab.client.sysctl("net.ipv4.tcp_max_tw_buckets", kept)
    for _ in range(kept + TIMES):
        with tcp_pair(way(lab, "veth-4")) as (sender, receiver):
            sender.shutdown(socket.SHUT_WR)
            assert receiver.recv(1) == b""
            receiver.shutdown(socket.SHUT_WR)
            assert sender.recv(1) == b""
    yield Provoked(lab.client, {"TcpExtTCPTimeWaitOverflow": TIMES})


def _read(receiver: socket.socket, len_bytes: int) -> None:
    while len_bytes:
        len_bytes -= len(receiver.recv(min(len_bytes, 1 << 20)))
