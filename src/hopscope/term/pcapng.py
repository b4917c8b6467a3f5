# SPDX-License-Identifier: Apache-2.0
"""Blocks of a pcapng file, but those of packets (:mod:`hopscope.term.pcapng_packets`).

The format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html.
"""

from __future__ import annotations

import ipaddress
import struct
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
_BYTE_ORDER: Final = 0x1A2B3C4D
_IPV4_NAME, _IPV6_NAME = 1, 2
_ETHERNET: Final = 1


def block(kind: int, body: bytes, options: Iterable[tuple[int, bytes]] = ()) -> bytes:
    """Return a block."""
    listed = b"".join(struct.pack("<HH", code, len(value)) + padded(value) for code, value in options)
    if listed:
        listed += bytes(4)
    length = 12 + len(body) + len(listed)
    return struct.pack("<II", kind, length) + body + listed + struct.pack("<I", length)


def section(fields: Iterable[str] | None, application: str) -> bytes:
    """Return a file's first block, whose comment says which fields packets have; None: no comment."""
    options = [(APPLICATION, application.encode())]
    if fields is not None:
        options.insert(0, (COMMENT, f"hopscope/1 {' '.join(fields)}".encode()))
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


def packet(frame: bytes, at_ns: int) -> bytes:
    """Return the block of a packet of the first device, of which all bytes are there."""
    head = struct.pack("<IIIII", 0, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), len(frame))
    return block(PACKET, head + padded(frame))


def lost(kernel: int, slow: int) -> str:
    """Return what a live capture says of events that are missing."""
    return f"lost: {kernel:,} by the kernel, {slow:,} because this capture read too slowly (events)"


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
