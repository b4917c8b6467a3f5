# SPDX-License-Identifier: Apache-2.0
"""Blocks of a pcapng file, and headers of packets made of what is known of them.

The format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECTION, INTERFACE, NAMES, STATISTICS, PACKET, JOURNAL = 0x0A0D0D0A, 1, 4, 5, 6, 9
# Options of any block, and of these.
COMMENT, APPLICATION = 1, 4
IF_NAME, IF_DESCRIPTION, IF_TSRESOL = 2, 3, 9
FLAGS, PACKET_ID = 2, 5
RECEIVED, LOST, DROPPED = 4, 5, 7
INBOUND, OUTBOUND = 1, 2
NANOSECONDS: Final = bytes([9])
LINK_BYTES: Final = 14
_BYTE_ORDER: Final = 0x1A2B3C4D
_IPV4_NAME, _IPV6_NAME = 1, 2
_ETHERNET: Final = 1
_TCP, _UDP = 6, 17
_TCP_BYTES, _MOST_TCP_BYTES, _UDP_BYTES = 20, 60, 8
_MOST: Final = 0xFFFF
_NO_OPERATION: Final = b"\1"


def block(kind: int, body: bytes, options: Iterable[tuple[int, bytes]] = ()) -> bytes:
    """Return a block."""
    listed = b"".join(struct.pack("<HH", code, len(value)) + padded(value) for code, value in options)
    if listed:
        listed += bytes(4)
    length = 12 + len(body) + len(listed)
    return struct.pack("<II", kind, length) + body + listed + struct.pack("<I", length)


def section(fields: Iterable[str], application: str) -> bytes:
    """Return a file's first block, whose comment says which fields packets have."""
    options = ((COMMENT, f"hopscope/1 {' '.join(fields)}".encode()), (APPLICATION, application.encode()))
    return block(SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1), options)


def interface(name: str, description: str) -> bytes:
    """Return the block of a device with Ethernet's headers, and times in nanoseconds."""
    options = ((IF_NAME, name.encode()), (IF_DESCRIPTION, description.encode()), (IF_TSRESOL, NANOSECONDS))
    return block(INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0), options)


def names(named: Mapping[str, str]) -> bytes:
    """Return the block that says what addresses are called."""
    body = b""
    for address, name in named.items():
        packed = ipaddress.ip_address(address).packed
        value = packed + name.encode() + b"\0"
        body += struct.pack("<HH", _IPV4_NAME if len(packed) == 4 else _IPV6_NAME, len(value)) + padded(value)
    return block(NAMES, body + bytes(4))


def statistics(number: int, at_ns: int, counts: Mapping[int, int]) -> bytes:
    """Return the block of a device's counts at a time, by their options: RECEIVED, LOST, DROPPED."""
    body = struct.pack("<III", number, at_ns >> 32, at_ns & 0xFFFFFFFF)
    return block(STATISTICS, body, [(option, struct.pack("<Q", count)) for option, count in counts.items()])


def packet(number: int, at_ns: int, data: bytes, length: int, options: Iterable[tuple[int, bytes]] = ()) -> bytes:
    """Return the block of a packet at a device, by its number, of which some bytes are there."""
    body = struct.pack("<IIIII", number, at_ns >> 32, at_ns & 0xFFFFFFFF, len(data), length)
    return block(PACKET, body + padded(data), options)


def journal(message: str, at_ns: int) -> bytes:
    """Return an entry of the systemd journal, a warning that stands between packets."""
    lines = (
        f"__REALTIME_TIMESTAMP={at_ns // 1000}",
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=hopscope",
        f"MESSAGE={message}",
    )
    return block(JOURNAL, padded("".join(f"{line}\n" for line in lines).encode()))


def padded(data: bytes) -> bytes:
    """Return data with zeros behind, up to whole words."""
    return data + bytes(-len(data) % 4)


def quoted(text: str) -> str:
    """Return a text as a value in a comment."""
    return '"' + text.replace('"', "'") + '"'


@dataclass(frozen=True, slots=True)
class Flow:
    """What the headers of a flow's packets have in common; `sum` is the addresses' part of IPv4's checksum."""

    addresses: bytes
    ports: bytes
    protocol: int
    version: int
    sum: int

    @classmethod
    def of(cls, source: str, source_port: int, destination: str, destination_port: int, protocol: int) -> Flow | None:
        """Return a flow by its ends; None: they are none."""
        try:
            ends = [ipaddress.ip_address(each) for each in (source, destination)]
        except ValueError:
            return None  # of a stranger's recording
        if ends[0].version != ends[1].version:
            return None
        packed = b"".join(each.packed for each in ends)
        summed = sum(struct.unpack(f">{len(packed) // 2}H", packed))
        ports = struct.pack(">HH", source_port & _MOST, destination_port & _MOST)
        return cls(packed, ports, protocol & 0xFF, ends[0].version, summed)

    @property
    def network_bytes(self) -> int:
        """Length of IP's header."""
        return 20 if self.version == 4 else 40

    def headers(self, *, seq: int, tcp_flags: int, header_bytes: int, len_bytes: int, link: int) -> tuple[bytes, int]:
        """Return the headers of a packet, and the packet's length with Ethernet's.

        Parameters
        ----------
        seq, tcp_flags, header_bytes, len_bytes
            As the table `packets` has them.
        link
            How many of these bytes are of the link's header.
        """
        payload = max(len_bytes - header_bytes, 0)
        network = self.network_bytes
        if self.protocol == _TCP:
            size = header_bytes - link - (network if header_bytes - link >= network + _TCP_BYTES else 0)
            size = size if _TCP_BYTES <= size <= _MOST_TCP_BYTES and size % 4 == 0 else _TCP_BYTES
            words = struct.pack(">IIBBHHH", seq & 0xFFFFFFFF, 0, size << 2, tcp_flags & 0xFF, _MOST, 0, 0)
            transport = self.ports + words + _NO_OPERATION * (size - _TCP_BYTES)
        elif self.protocol == _UDP:
            transport = self.ports + struct.pack(">HH", min(payload + _UDP_BYTES, _MOST), 0)
        else:
            transport, payload = b"", max(len_bytes - link - network, 0)
        rest = len(transport) + payload
        if self.version == 4:  # of IP
            # What is too long for the field is segmented later: Wireshark takes 0 for that.
            total = network + rest if network + rest <= _MOST else 0
            number = 0 if self.protocol == _TCP else seq & _MOST
            summed = 0x4500 + total + number + 0x4000 + self.protocol + self.sum
            summed = (summed & _MOST) + (summed >> 16)
            checksum = ~((summed & _MOST) + (summed >> 16)) & _MOST
            head = struct.pack(">BBHHHBBH", 0x45, 0, total, number, 0, 64, self.protocol, checksum) + self.addresses
        else:
            head = struct.pack(">IHBB", 6 << 28, min(rest, _MOST), self.protocol, 64) + self.addresses
        kind = b"\x08\x00" if self.version == 4 else b"\x86\xdd"  # of IP
        return bytes(12) + kind + head + transport, LINK_BYTES + network + rest
