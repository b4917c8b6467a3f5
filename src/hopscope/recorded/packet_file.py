# SPDX-License-Identifier: Apache-2.0
"""What a pcapng file has of what `hopscope export pcapng` wrote: other tools may have removed the comments."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO, Final

from hopscope.term.pcapng import COMMENT, PACKET, SECTION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECTION: Final = SECTION.to_bytes(4)  # the same in both orders of bytes
_LITTLE: Final = b"\x4d\x3c\x2b\x1a"
# Files of the older format, with times in micro- or nanoseconds → the order of bytes.
_PCAP: Final = {struct.pack(f"{order}I", magic): order for magic in (0xA1B2C3D4, 0xA1B23C4D) for order in ("<", ">")}
_PCAP_HEAD_BYTES, _RECORD_HEAD_BYTES = 24, 16
_HEAD_BYTES, _PACKET_HEAD_BYTES, _SECTION_HEAD_BYTES = 8, 20, 16
_LONGEST: Final = 1 << 24
# Of packets, before it is certain that none has any.
_LOOKED_AT: Final = 1000
_FIELDS, _VALUES = b"hopscope/1 ", b"hopscope "


def missing_comments(path: Path) -> str | None:
    """Return a sentence if the comments of hopscope are not in a file; empty: they are; None: it is no pcapng file."""
    with path.open("rb") as file:
        if file.read(len(_SECTION)) != _SECTION:
            return None
        file.seek(0)
        blocks = list(_comments(file))
    said = any(each.startswith(_FIELDS) for kind, each in blocks if kind != PACKET)
    packets = [each for kind, each in blocks if kind == PACKET]
    if packets and not any(each.startswith(_VALUES) for each in packets):
        return f"The packets of {path} have no comments of hopscope: another tool has removed them, or made the file"
    if not said:
        return f"The first block of {path} does not say which fields packets have: another tool has removed its comment"
    return ""


def frames(path: Path) -> Iterator[bytes]:
    """Yield the bytes of each frame that a file has, pcap or pcapng; of another file, none."""
    with path.open("rb") as file:
        magic = file.read(len(_SECTION))
        file.seek(0)
        if magic == _SECTION:
            for kind, body, its_order in _blocks(file):
                if kind == PACKET and len(body) >= _PACKET_HEAD_BYTES:
                    yield body[_PACKET_HEAD_BYTES : _PACKET_HEAD_BYTES + _captured(body, its_order)]
        elif order := _PCAP.get(magic):
            yield from _records(file, order)


def _records(file: BinaryIO, order: str) -> Iterator[bytes]:
    """Yield the frames of a pcap file."""
    file.seek(_PCAP_HEAD_BYTES)
    while len(head := file.read(_RECORD_HEAD_BYTES)) == _RECORD_HEAD_BYTES:
        (captured,) = struct.unpack_from(f"{order}I", head, 8)
        if captured > _LONGEST:
            return
        yield file.read(captured)


def _comments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the kind of the first blocks and a comment of each; empty: it has none."""
    packets = 0
    for kind, body, order in _blocks(file):
        packets += kind == PACKET
        if kind == PACKET and len(body) >= _PACKET_HEAD_BYTES:
            captured = _captured(body, order)
            yield kind, _comment(body[_PACKET_HEAD_BYTES + captured + -captured % 4 :], order)
        elif kind == SECTION:
            yield 0, _comment(body[_SECTION_HEAD_BYTES:], order)
        if packets >= _LOOKED_AT:
            return


def _captured(body: bytes, order: str) -> int:
    """Return how many bytes of a packet its block has."""
    (captured,) = struct.unpack_from(f"{order}I", body, 12)
    return int(captured)


def _blocks(file: BinaryIO) -> Iterator[tuple[int, bytes, str]]:
    """Yield kind and contents of each block, and the order of bytes in it."""
    order = "<"
    while len(head := file.read(_HEAD_BYTES)) == _HEAD_BYTES:
        if head.startswith(_SECTION):
            magic = file.read(4)
            order = "<" if magic == _LITTLE else ">"
            file.seek(-4, 1)
        kind, length = struct.unpack(f"{order}II", head)
        if not _HEAD_BYTES + 4 <= length <= _LONGEST:
            return
        yield kind, file.read(length - _HEAD_BYTES)[:-4], order


def _comment(options: bytes, order: str) -> bytes:
    """Return the first comment that is hopscope's, or any, or nothing."""
    found, at = b"", 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}HH", options, at)
        if not code:
            break
        value = options[at + 4 : at + 4 + length]
        if code == COMMENT and value.startswith((_FIELDS, _VALUES)):
            return value
        found = value if code == COMMENT else found
        at += 4 + length + -length % 4
    return found
