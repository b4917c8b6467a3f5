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


def _comments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the kind of the first blocks and a comment of each; empty: it has none."""
    order, packets = "<", 0
    while packets < _LOOKED_AT and len(head := file.read(_HEAD_BYTES)) == _HEAD_BYTES:
        if head.startswith(_SECTION):
            magic = file.read(4)
            order = "<" if magic == _LITTLE else ">"
            file.seek(-4, 1)
        kind, length = struct.unpack(f"{order}II", head)
        if not _HEAD_BYTES + 4 <= length <= _LONGEST:
            return
        body = file.read(length - _HEAD_BYTES)[:-4]
        packets += kind == PACKET
        if kind == PACKET and len(body) >= _PACKET_HEAD_BYTES:
            (captured,) = struct.unpack_from(f"{order}I", body, 12)
            yield kind, _comment(body[_PACKET_HEAD_BYTES + captured + -captured % 4 :], order)
        elif head.startswith(_SECTION):
            yield 0, _comment(body[_SECTION_HEAD_BYTES:], order)


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
