# SPDX-License-Identifier: Apache-2.0
"""Datagrams that are lost at a socket, or that no socket waits for."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time
from typing import TYPE_CHECKING, Final

from hopscope.lab import Tbf, shape
from hopscope.lab.veth import CLIENT_IFNAME, CLIENT_IPV4, SERVER_IPV4, SERVER_IPV6
from tests.lab.measure import udp_pair, way
from tests.lab.packets import Datagram
from tests.provoke.common import TIMES, Provoked, host_setting, raw_ipv4
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_SO_ATTACH_FILTER: Final = 26
_SO_MEMINFO: Final = 55
_SK_MEMINFO_DROPS: Final = 8
_CLOSED_PORT: Final = 7
# So slow that nothing leaves its queue before the test is over.
STANDSTILL: Final = Tbf(rate_bit_s=1_000, burst_bytes=500, limit_bytes=10_000)


@contextlib.contextmanager
def receive_buffer_full(lab: Lab, family: int = 4) -> Iterator[Provoked]:
    """Nobody reads, and exactly so many find no room."""
    with udp_pair(way(lab, f"veth-{family}")) as (sender, receiver):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        _lose(sender, receiver)
        prefix = "Udp" if family == 4 else "Udp6"
        yield Provoked(
            lab.server,
            {f"{prefix}RcvbufErrors": TIMES, f"{prefix}InErrors": TIMES},
            subject="{}:{}".format(*receiver.getsockname()[:2]),
        )


@contextlib.contextmanager
def receive_memory_used_up(lab: Lab) -> Iterator[Provoked]:
    """The memory of all datagrams of the host (udp_mem) is used up, though the socket has room."""
    with udp_pair(way(lab, "veth-4")) as (sender, receiver):
        # What others have in their buffers stays allowed: each socket has udp_rmem_min for itself.
        with host_setting("net.ipv4.udp_mem", "1 1 1"):
            _lose(sender, receiver)
        # Linux 6.18 counts them at the socket only ("TODO: update SNMP values" in __udp_enqueue_schedule_skb).
        subject = "{}:{}".format(*receiver.getsockname())
        yield Provoked(lab.server, {}, {("udp_socket", subject, "drops"): TIMES}, subject)


@contextlib.contextmanager
def filtered(lab: Lab) -> Iterator[Provoked]:
    """An application has told the kernel what it does not want (SO_ATTACH_FILTER): nothing is wrong."""
    nothing = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0))
    with udp_pair(way(lab, "veth-4")) as (sender, receiver):
        program = struct.pack("HL", 1, ctypes.addressof(nothing))
        receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        _lose(sender, receiver)
        yield Provoked(lab.server, {"UdpInErrors": TIMES})


@contextlib.contextmanager
def send_buffer_full(lab: Lab) -> Iterator[Provoked]:
    """The interface stands still, and exactly so many are refused at the socket."""
    shape(lab.client, CLIENT_IFNAME, STANDSTILL)
    with udp_pair(way(lab, "veth-4")) as (sender, _):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sender.setblocking(False)  # noqa: FBT003 - Python's own
        refused = 0
        while refused < TIMES:
            try:
                sender.send(bytes(300))
            except BlockingIOError:
                refused += 1
        yield Provoked(lab.client, {"UdpSndbufErrors": TIMES})


@contextlib.contextmanager
def no_listener(lab: Lab, family: int = 4) -> Iterator[Provoked]:
    """Datagrams to a port that nobody has."""
    host = SERVER_IPV4 if family == 4 else SERVER_IPV6
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with lab.client.call(socket.socket, kind, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES):
            sender.sendto(bytes(100), (host, _CLOSED_PORT))
        yield Provoked(lab.server, {"UdpNoPorts" if family == 4 else "Udp6NoPorts": TIMES})


@contextlib.contextmanager
def wrong_checksum(lab: Lab) -> Iterator[Provoked]:
    """Datagrams whose bytes are not what was sent."""
    packet = Datagram((CLIENT_IPV4, 7), (SERVER_IPV4, _CLOSED_PORT), bytes(100), checksum_error=1).build()
    with raw_ipv4(lab.client) as raw:
        for _ in range(TIMES):
            raw.sendto(packet, (SERVER_IPV4, 0))
        yield Provoked(lab.server, {"UdpInCsumErrors": TIMES, "UdpInErrors": TIMES})


def _lose(sender: socket.socket, receiver: socket.socket) -> None:
    while not _dropped(receiver):
        sender.send(bytes(1000))
        # What is sent is in the other's buffer on return, unless its CPU is late: then one too many would be lost.
        time.sleep(0.001)
    for _ in range(TIMES - _dropped(receiver)):
        sender.send(bytes(1000))
    eventually(lambda: _dropped(receiver) == TIMES)


def _dropped(sock: socket.socket) -> int:
    values = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))
    return int(values[_SK_MEMINFO_DROPS])
