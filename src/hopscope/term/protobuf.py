# SPDX-License-Identifier: Apache-2.0
"""Messages of Protocol Buffers, read, and written many alike at a time.

https://protobuf.dev/programming-guides/encoding/ has the format.

A number may have more bytes than it needs, up to ten. So all messages of a kind have the same size, their bytes are the
rows of an array, and NumPy puts the numbers of all of them in place at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_BITS: Final = 7
_MORE: Final = 0x80
_MOST: Final = 10


class Slot(NamedTuple):
    """Where a number goes: the name of its array, its bytes, and whether it is fixed64."""

    name: str
    width: int
    fixed: bool = False


Part: TypeAlias = "bytes | Slot"


def fields(message: bytes) -> dict[int, list[int | bytes]]:
    """Return what a message has: field → its values, as bytes where they are no numbers of variable length.

    Raises
    ------
    ValueError
        It is none.
    """
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        field, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _read_varint(message, at)
        else:
            size, at = (_FIXED_BYTES[kind], at) if kind in _FIXED_BYTES else _read_varint(message, at)
            value, at = message[at : at + size], at + size
        if kind not in {_VARINT, _BYTES, *_FIXED_BYTES} or at > len(message):
            raise ValueError("It is no message of Protocol Buffers")
        found.setdefault(field, []).append(value)
    return found


def text_in(message: bytes, *path: int) -> str:
    """Return the text, or the bytes as one, of the last field of a path; empty: it is not there."""
    *above, last = path
    for field in above:
        message = _last_bytes(message, field)
    return _last_bytes(message, last).decode(errors="replace")


def number_in(message: bytes, field: int) -> int:
    """Return a number as int64 has it; 0: it is not there."""
    value = fields(message).get(field, [0])[-1]
    return (value ^ 1 << 63) - (1 << 63) if isinstance(value, int) else 0


def _last_bytes(message: bytes, field: int) -> bytes:
    value = fields(message).get(field, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    value = 0
    for place, byte in enumerate(message[at : at + _MOST]):
        value |= (byte & _MORE - 1) << place * _BITS
        if byte < _MORE:
            return value & (1 << 64) - 1, at + place + 1
    raise ValueError("A number of a message of Protocol Buffers does not end")


def varint(value: int) -> bytes:
    """Return a number."""
    found = bytearray()
    while value >= _MORE:
        found.append(value % _MORE | _MORE)
        value //= _MORE
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    """Return a field with a number."""
    return varint(field << 3 | _VARINT) + varint(value)


def content(field: int, value: bytes | str) -> bytes:
    """Return a field with bytes, a text or a message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | _BYTES) + varint(len(raw)) + raw


def double(field: int, value: float) -> bytes:
    """Return a field with a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field with eight bytes, fixed64 or sfixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<q", value)


def zigzag(value: int) -> int:
    """Return a signed number as sint32 and sint64 have it."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def numbers(field: int, name: str, values: NDArray[Any]) -> list[Part]:
    """Return a field with a number of its own in each message, in as few bytes as the largest needs."""
    return [varint(field << 3 | _VARINT), Slot(name, width(values))]


def fixed(field: int, name: str) -> list[Part]:
    """Return a field with eight bytes of its own in each message."""
    return [varint(field << 3 | _FIXED64), Slot(name, 8, fixed=True)]


def inside(field: int, parts: Sequence[Part]) -> list[Part]:
    """Return a field with a message of these parts."""
    return [varint(field << 3 | _BYTES) + varint(sum(map(_size, parts))), *parts]


def width(values: NDArray[Any]) -> int:
    """Return how many bytes the largest of these numbers takes; a negative one takes all that there are."""
    if not len(values) or int(values.min()) < 0:
        return _MOST
    return max(-(-int(values.max()).bit_length() // _BITS), 1)


def encoded(parts: Sequence[Part], arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return the messages, a row each."""
    count = len(next(iter(arrays.values())))
    found = np.empty((count, sum(map(_size, parts))), np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, bytes):
            found[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
        elif part.fixed:
            found[:, at : at + part.width] = arrays[part.name].astype("<u8").view(np.uint8).reshape(count, 8)
        else:
            _put(found[:, at : at + part.width], arrays[part.name])
        at += _size(part)
    return found


def _put(place: NDArray[np.uint8], values: NDArray[Any]) -> None:
    rest, last = values.astype(np.int64).view(np.uint64), place.shape[1] - 1
    for byte in range(last):
        place[:, byte] = rest & np.uint64(_MORE - 1) | np.uint64(_MORE)
        rest >>= np.uint64(_BITS)
    place[:, last] = rest


def _size(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.width
