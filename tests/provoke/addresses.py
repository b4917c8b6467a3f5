# SPDX-License-Identifier: Apache-2.0
"""Packets that IP does not deliver: no way, no time to live, no such source, no part, no such header."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.lab.veth import CLIENT_IPV4, SERVER_IFNAME, SERVER_IPV4, SERVER_IPV6
from tests.lab.packets import DONT_FRAGMENT, MORE_FRAGMENTS, Datagram
from tests.provoke.common import TIMES, Provoked, raw_ipv4, wire
from tests.provoke.evidence import nstat
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

# For documentation (RFC 5737): nobody has it.
_NOWHERE: Final = "192.0.2.7"
_NOWHERE_6: Final = "2001:db8::7"
_PORT: Final = 7


@contextlib.contextmanager
def no_route_from_here(lab: Lab) -> Iterator[Provoked]:
    """What this host sends has no way to go."""
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES):
            with pytest.raises(OSError, match="unreachable"):
                sender.sendto(b"x", (_NOWHERE, _PORT))
        yield Provoked(lab.client, {"IpOutNoRoutes": TIMES})


@contextlib.contextmanager
def no_route_from_here_6(lab: Lab) -> Iterator[Provoked]:
    """As :func:`no_route_from_here`, of version 6."""
    with lab.client.call(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES):
            with pytest.raises(OSError, match="unreachable"):
                sender.sendto(b"x", (_NOWHERE_6, _PORT))
        yield Provoked(lab.client, {"Ip6OutNoRoutes": TIMES})


@contextlib.contextmanager
def missing_fragment_6(lab: Lab) -> Iterator[Provoked]:
    """As :func:`missing_fragment`, of version 6."""
    lab.server.sysctl("net.ipv6.ip6frag_time", 1)
    next_is_udp, more, offset = 17, 1, 0
    with lab.client.call(socket.socket, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_FRAGMENT) as raw:
        for number in range(TIMES):
            head = struct.pack("!BBHI", next_is_udp, 0, offset << 3 | more, number)
            raw.sendto(head + bytes(64), (SERVER_IPV6, 0))
    eventually(lambda: nstat(lab.server)["Ip6ReasmFails"] >= TIMES)
    yield Provoked(lab.server, {"Ip6ReasmFails": TIMES, "Ip6ReasmTimeout": TIMES, "Ip6ReasmReqds": TIMES})


@contextlib.contextmanager
def no_route_through_here(lab: Lab) -> Iterator[Provoked]:
    """A router has no way for what comes to it."""
    lab.server.sysctl("net.ipv4.ip_forward", 1)
    _send(lab, Datagram((CLIENT_IPV4, _PORT), (_NOWHERE, _PORT), b"x"))
    yield Provoked(lab.server, {"IpExtInNoRoutes": TIMES})


@contextlib.contextmanager
def not_for_us(lab: Lab) -> Iterator[Provoked]:
    """A host that is no router has packets for others come to it."""
    lab.server.sysctl("net.ipv4.ip_forward", 0)
    _send(lab, Datagram((CLIENT_IPV4, _PORT), (_NOWHERE, _PORT), b"x"))
    yield Provoked(lab.server, {"IpInAddrErrors": TIMES})


@contextlib.contextmanager
def time_to_live_over(lab: Lab) -> Iterator[Provoked]:
    """A router takes the last of a packet's time to live."""
    lab.server.sysctl("net.ipv4.ip_forward", 1)
    lab.server.run(["ip", "route", "replace", "192.0.2.0/24", "dev", "lo"], check=True)
    _send(lab, Datagram((CLIENT_IPV4, _PORT), (_NOWHERE, _PORT), b"x", ttl=1))
    yield Provoked(lab.server, {"IpInHdrErrors": TIMES})


@contextlib.contextmanager
def too_large_to_forward(lab: Lab) -> Iterator[Provoked]:
    """A router must not split what is too large for its next link, and says so (an MTU that does not match)."""
    lab.server.sysctl("net.ipv4.ip_forward", 1)
    for words in (
        ["link", "add", "narrow0", "mtu", "1000", "type", "veth", "peer", "narrow1"],
        ["link", "set", "narrow0", "up"],
        ["link", "set", "narrow1", "up"],
        ["route", "add", "192.0.2.0/24", "dev", "narrow0"],
    ):
        lab.server.run(["ip", *words], check=True)
    _send(lab, Datagram((CLIENT_IPV4, _PORT), (_NOWHERE, _PORT), bytes(1200), fragment=DONT_FRAGMENT))
    yield Provoked(lab.server, {"IpFragFails": TIMES})


@contextlib.contextmanager
def reverse_path(lab: Lab) -> Iterator[Provoked]:
    """A source that would not be answered by the way that its packets come (rp_filter)."""
    lab.server.sysctl(f"net.ipv4.conf.{SERVER_IFNAME}.rp_filter", 1)
    _send(lab, Datagram((_NOWHERE, _PORT), (SERVER_IPV4, _PORT), b"x"))
    yield Provoked(lab.server, {"TcpExtIPReversePathFilter": TIMES})


@contextlib.contextmanager
def martian(lab: Lab) -> Iterator[Provoked]:
    """A source that no packet on a wire can have."""
    lab.server.sysctl(f"net.ipv4.conf.{SERVER_IFNAME}.log_martians", 0)
    _send(lab, Datagram(("127.0.0.7", _PORT), (SERVER_IPV4, _PORT), b"x"))
    yield Provoked(lab.server, {})


@contextlib.contextmanager
def wrong_header_checksum(lab: Lab) -> Iterator[Provoked]:
    """Headers that were changed on their way."""
    packet = bytearray(Datagram((CLIENT_IPV4, _PORT), (SERVER_IPV4, _PORT), b"x").build())
    packet[10] ^= 0xFF
    with wire(lab) as (sender, address):
        for _ in range(TIMES):
            sender.sendto(packet, address)
        yield Provoked(lab.server, {"IpExtInCsumErrors": TIMES, "IpInHdrErrors": TIMES})


@contextlib.contextmanager
def cut_off(lab: Lab) -> Iterator[Provoked]:
    """Packets that end before their header says."""
    packet = Datagram((CLIENT_IPV4, _PORT), (SERVER_IPV4, _PORT), bytes(100)).build()
    with wire(lab) as (sender, address):
        for _ in range(TIMES):
            sender.sendto(packet[:60], address)
        yield Provoked(lab.server, {"IpExtInTruncatedPkts": TIMES})


@contextlib.contextmanager
def unknown_protocol(lab: Lab) -> Iterator[Provoked]:
    """Packets of a protocol that nobody here speaks."""
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, 253) as raw:
        for _ in range(TIMES):
            raw.sendto(b"x", (SERVER_IPV4, 0))
        yield Provoked(lab.server, {"IpInUnknownProtos": TIMES})


@contextlib.contextmanager
def missing_fragment(lab: Lab) -> Iterator[Provoked]:
    """First parts whose others do not come, until the kernel waits no longer."""
    lab.server.sysctl("net.ipv4.ipfrag_time", 1)
    _send_first_parts(lab, TIMES)
    eventually(lambda: nstat(lab.server)["IpReasmFails"] >= TIMES)
    yield Provoked(lab.server, {"IpReasmFails": TIMES, "IpReasmTimeout": TIMES, "IpReasmReqds": TIMES})


@contextlib.contextmanager
def fragment_memory_full(lab: Lab) -> Iterator[Provoked]:
    """Parts wait, and there is no memory for others."""
    lab.server.sysctl("net.ipv4.ipfrag_low_thresh", 1)
    lab.server.sysctl("net.ipv4.ipfrag_high_thresh", 1)
    _send_first_parts(lab, TIMES)
    yield Provoked(lab.server, {"IpReasmFails": TIMES - 1, "IpReasmReqds": TIMES})


@contextlib.contextmanager
def overlapping_fragments(lab: Lab) -> Iterator[Provoked]:
    """Parts that say of the same bytes that they are others."""
    with raw_ipv4(lab.client) as raw:
        for number in range(TIMES):
            for offset in (0, 4):
                part = Datagram(
                    (CLIENT_IPV4, _PORT),
                    (SERVER_IPV4, _PORT),
                    bytes(64),
                    fragment=MORE_FRAGMENTS | offset,
                    identification=1 + number,
                )
                raw.sendto(part.build(), (SERVER_IPV4, 0))
        yield Provoked(lab.server, {"IpExtReasmOverlaps": TIMES, "IpReasmFails": TIMES})


def _send(lab: Lab, packet: Datagram) -> None:
    with wire(lab) as (sender, address):
        for _ in range(TIMES):
            sender.sendto(packet.build(), address)


def _send_first_parts(lab: Lab, count: int) -> None:
    with raw_ipv4(lab.client) as raw:
        for number in range(count):
            part = Datagram(
                (CLIENT_IPV4, _PORT),
                (SERVER_IPV4, _PORT),
                bytes(64),
                fragment=MORE_FRAGMENTS,
                identification=1 + number,
            )
            raw.sendto(part.build(), (SERVER_IPV4, 0))
