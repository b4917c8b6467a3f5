# SPDX-License-Identifier: Apache-2.0
"""Connections that a listener has no room for, or that nobody listens for."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.measure import TIMEOUT_S
from tests.lab.packets import Segment, TcpFlag, build
from tests.provoke.common import SILENT, TIMES, Provoked, raw_ipv4
from tests.provoke.evidence import nstat
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab, Namespace

_CLOSED_PORT: Final = 9
_BACKLOG: Final = 7


@contextlib.contextmanager
def accept_queue_full(lab: Lab, *, abort: bool = False) -> Iterator[Provoked]:
    """A listener that accepts nothing, and exactly so many SYN that find its queue full."""
    lab.server.sysctl("net.ipv4.tcp_abort_on_overflow", int(abort))
    with accept_queue_filled(lab.server, lab.client) as listener:
        address = listener.getsockname()
        _send_syns(lab, CLIENT_IPV4, address[1], TIMES)
        yield Provoked(
            lab.server,
            {"TcpExtListenOverflows": TIMES, "TcpExtListenDrops": TIMES},
            subject="{}:{}".format(*address),
        )


@contextlib.contextmanager
def accept_queue_filled(server: Namespace, client: Namespace) -> Iterator[socket.socket]:
    """Yield a listener that accepts nothing and whose queue has no room."""
    with _listener(server, _BACKLOG) as listener, contextlib.ExitStack() as stack:
        # The queue takes one more than was asked for.
        for _ in range(_BACKLOG + 1):
            stack.enter_context(client.call(socket.create_connection, listener.getsockname(), TIMEOUT_S))
        _wait_queued(server, _BACKLOG + 1)
        yield listener


@contextlib.contextmanager
def attempts_refused(lab: Lab, attempts: int = 100) -> Iterator[Provoked]:
    """So many connection attempts that find the queue full; each is retransmitted at least once, then given up."""
    with accept_queue_filled(lab.server, lab.client) as listener:
        with contextlib.ExitStack() as stack:
            for _ in range(attempts):
                sock = stack.enter_context(lab.client.call(socket.socket))
                sock.setblocking(False)  # noqa: FBT003 - Python's own
                sock.connect_ex(listener.getsockname())
            eventually(lambda: nstat(lab.client)["TcpExtTCPSynRetrans"] >= attempts)
        refused = attempts + nstat(lab.client)["TcpExtTCPSynRetrans"]
        yield Provoked(lab.server, {"TcpExtListenOverflows": refused, "TcpExtListenDrops": refused})


@contextlib.contextmanager
def accept_queue_nearly_full(lab: Lab) -> Iterator[Provoked]:
    """A listener's queue with 29 of 32 places taken, and nothing lost."""
    with _listener(lab.server, 31) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()
        for _ in range(29):
            stack.enter_context(lab.client.call(socket.create_connection, address, TIMEOUT_S))
        _wait_queued(lab.server, 29)
        yield Provoked(lab.server, {"TcpPassiveOpens": 29}, subject="{}:{}".format(*address))


@contextlib.contextmanager
def syn_flood(lab: Lab) -> Iterator[Provoked]:
    """More requests than a listener keeps: the rest is answered with cookies, or not at all."""
    with _listener(lab.server, _BACKLOG) as listener:
        _send_syns(lab, SILENT, listener.getsockname()[1], _BACKLOG + 1 + TIMES)
        yield Provoked(lab.server, {"TcpExtSyncookiesSent": TIMES, "TcpExtTCPReqQFullDoCookies": TIMES})


@contextlib.contextmanager
def syn_flood_without_cookies(lab: Lab) -> Iterator[Provoked]:
    """More requests than a listener keeps, where cookies are off."""
    lab.server.sysctl("net.ipv4.tcp_syncookies", 0)
    with _listener(lab.server, _BACKLOG) as listener:
        _send_syns(lab, SILENT, listener.getsockname()[1], _BACKLOG + 1 + TIMES)
        yield Provoked(lab.server, {"TcpExtTCPReqQFullDrop": TIMES, "TcpExtListenDrops": TIMES})


@contextlib.contextmanager
def refused(lab: Lab) -> Iterator[Provoked]:
    """Connections to a port that nobody listens on: each attempt fails here and is reset there."""
    for _ in range(TIMES):
        with contextlib.suppress(ConnectionRefusedError):
            lab.client.call(_connect, _CLOSED_PORT)
    yield Provoked(lab.client, {"TcpAttemptFails": TIMES, "TcpActiveOpens": TIMES})


@contextlib.contextmanager
def resets_sent(lab: Lab) -> Iterator[Provoked]:
    """As :func:`refused`, seen from the host that nobody listens on."""
    with refused(lab):
        yield Provoked(lab.server, {"TcpOutRsts": TIMES})


@contextlib.contextmanager
def wrong_checksum(lab: Lab) -> Iterator[Provoked]:
    """Segments whose bytes are not what was sent."""
    segment = Segment((CLIENT_IPV4, 7), (SERVER_IPV4, _CLOSED_PORT), 1, 1, TcpFlag.ACK, payload=b"right")
    packet = build(segment)[:-5] + b"wrong"
    with raw_ipv4(lab.client) as raw:
        for _ in range(TIMES):
            raw.sendto(packet, (SERVER_IPV4, 0))
        yield Provoked(lab.server, {"TcpInCsumErrors": TIMES, "TcpInErrs": TIMES})


@contextlib.contextmanager
def _listener(namespace: Namespace, backlog: int) -> Iterator[socket.socket]:
    with namespace.call(socket.create_server, (SERVER_IPV4, 0), backlog=backlog) as made:
        yield made


def _connect(port: int) -> None:
    with socket.create_connection((SERVER_IPV4, port), TIMEOUT_S):
        pass


def _send_syns(lab: Lab, source: str, port: int, count: int) -> None:
    with raw_ipv4(lab.client) as raw:
        for number in range(count):
            syn = Segment((source, 20_000 + number), (SERVER_IPV4, port), number, 0, TcpFlag.SYN, mss_bytes=1400)
            raw.sendto(build(syn), (SERVER_IPV4, 0))


def _wait_queued(namespace: Namespace, count: int) -> None:
    """Wait until as many wait to be accepted: the last ACK is under way when `connect` returns."""
    listening = "0A"

    def queued() -> int:
        lines = namespace.call(Path("/proc/thread-self/net/tcp").read_text).splitlines()[1:]
        # Columns: sl local rem st tx_queue:rx_queue
        return sum(int(line.split()[4].split(":")[1], 16) for line in lines if line.split()[3] == listening)

    eventually(lambda: queued() == count)
