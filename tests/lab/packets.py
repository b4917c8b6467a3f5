# SPDX-License-Identifier: Apache-2.0
"""TCP segments as bytes of IPv4 (RFC 791) or IPv6 (RFC 8200) packets, and back; UDP datagrams with any fault."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntFlag

_TTL = 64
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_TCP = struct.Struct("!HHIIBBHHH")
_OPTION_MSS = 2
MORE_FRAGMENTS = 0x2000
DONT_FRAGMENT = 0x4000


class TcpFlag(IntFlag):
    """Flags of a TCP header (RFC 9293, section 3.1)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10


@dataclass(frozen=True)
class Segment:
    """A TCP segment with the addresses around it.

    Parameters
    ----------
    source, destination
        Numeric address and port, both IPv4 or both IPv6.
    seq, ack
        As on the wire, modulo 2**32.
    flags, window, payload
        As on the wire.
    mss_bytes
        The option of a SYN; None for none.
    """

    source: tuple[str, int]
    destination: tuple[str, int]
    seq: int
    ack: int
    flags: TcpFlag
    window: int = 0xFFFF
    payload: bytes = b""
    mss_bytes: int | None = None


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram in an IPv4 packet or in a part of one, right or wrong.

    Parameters
    ----------
    source, destination
        Numeric IPv4 address and port.
    payload
        Of UDP.
    checksum_error
        Added to the checksum of UDP, modulo 65,535.
    fragment
        Flags and offset field of the IP header as on the wire: :data:`MORE_FRAGMENTS`, :data:`DONT_FRAGMENT`, and the
        offset in units of 8 bytes. What is at an offset still begins with a UDP header.
    identification, ttl
        As on the wire.
    """

    source: tuple[str, int]
    destination: tuple[str, int]
    payload: bytes
    checksum_error: int = 0
    fragment: int = 0
    identification: int = 77
    ttl: int = _TTL

    def build(self) -> bytes:
        """Return the IPv4 packet."""
        source, destination = (socket.inet_aton(host) for host, _ in (self.source, self.destination))
        length = 8 + len(self.payload)
        header = struct.pack("!HHH", self.source[1], self.destination[1], length)
        pseudo = source + destination + struct.pack("!HH", socket.IPPROTO_UDP, length)
        right = checksum(pseudo + header + b"\0\0" + self.payload)
        # The sum of ones' complements; 0 would say that there is none (RFC 768).
        sent = (right + self.checksum_error) % 0xFFFF or 0xFFFF
        udp = header + struct.pack("!H", sent) + self.payload
        fields = (0x45, 0, _IPV4.size + length, self.identification, self.fragment, self.ttl, socket.IPPROTO_UDP)
        return _IPV4.pack(*fields, checksum(_IPV4.pack(*fields, 0, source, destination)), source, destination) + udp


def build(segment: Segment) -> bytes:
    """Return the IP packet of a segment, with its checksums."""
    family = _family(segment.source[0])
    source, destination = (socket.inet_pton(family, host) for host, _ in (segment.source, segment.destination))
    options = b"" if segment.mss_bytes is None else struct.pack("!BBH", _OPTION_MSS, 4, segment.mss_bytes)
    header = _tcp_header(segment, options, 0)
    length = len(header) + len(segment.payload)
    pseudo = source + destination + struct.pack("!II", length, socket.IPPROTO_TCP)
    tcp = _tcp_header(segment, options, checksum(pseudo + header + segment.payload)) + segment.payload
    if family == socket.AF_INET6:
        return _IPV6.pack(6 << 28, length, socket.IPPROTO_TCP, _TTL, source, destination) + tcp
    fields = (0x45, 0, _IPV4.size + length, 0, 0, _TTL, socket.IPPROTO_TCP)
    ipv4_checksum = checksum(_IPV4.pack(*fields, 0, source, destination))
    return _IPV4.pack(*fields, ipv4_checksum, source, destination) + tcp


def parse(packet: bytes) -> Segment | None:
    """Return the segment of an IP packet, None when it is no TCP; options are left out, checksums not looked at."""
    version = packet[0] >> 4
    if version == 4:
        header = _IPV4.unpack_from(packet)
        start, protocol, source, destination = (packet[0] & 0xF) * 4, header[6], header[8], header[9]
        end = header[2]
    else:
        _, length, protocol, _, source, destination = _IPV6.unpack_from(packet)
        start, end = _IPV6.size, _IPV6.size + length
    if protocol != socket.IPPROTO_TCP:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    ports_and_rest = _TCP.unpack_from(packet, start)
    source_port, destination_port, seq, ack, data_offset, flags, window, _, _ = ports_and_rest
    return Segment(
        (socket.inet_ntop(family, source), source_port),
        (socket.inet_ntop(family, destination), destination_port),
        seq,
        ack,
        TcpFlag(flags & 0x1F),
        window,
        packet[start + (data_offset >> 4) * 4 : end],
    )


def checksum(data: bytes) -> int:
    """Return the internet checksum (RFC 1071) of bytes in which the checksum's own field is zero."""
    if len(data) % 2:
        data += b"\0"
    total = sum(int(word) for (word,) in struct.iter_unpack("!H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _tcp_header(segment: Segment, options: bytes, checksum_value: int) -> bytes:
    data_offset = (_TCP.size + len(options)) // 4
    return (
        _TCP.pack(
            segment.source[1],
            segment.destination[1],
            segment.seq & 0xFFFFFFFF,
            segment.ack & 0xFFFFFFFF,
            data_offset << 4,
            segment.flags,
            segment.window,
            checksum_value,
            0,
        )
        + options
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
