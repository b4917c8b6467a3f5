# SPDX-License-Identifier: Apache-2.0
"""Thrift's compact protocol, as far as the ends and headers of Parquet files need it.

See https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

I32: Final = 5
I64: Final = 6
TEXT: Final = 8
LIST: Final = 9
STRUCT: Final = 12
_SHORT: Final = 15


class Field(NamedTuple):
    """A field of a struct: its number there, one of the types above, and its value.

    That of a list is the type of its elements and them; that of a struct, its fields, their numbers rising.
    """

    number: int
    kind: int
    value: Any


def packed(fields: Sequence[Field]) -> bytes:
    """Return a struct."""
    out = bytearray()
    before = 0
    for number, kind, value in fields:
        out.append((number - before) << 4 | kind)
        out += _value(kind, value)
        before = number
    out.append(0)
    return bytes(out)


def varint(number: int) -> bytes:
    """Return a number that is not below 0: seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def signed_varint(number: int) -> bytes:
    """Return a number of any sign, such that small ones are short ("zigzag")."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _value(kind: int, value: Any) -> bytes:  # noqa: ANN401 - see Field
    if kind == TEXT:
        text: bytes = value.encode()
        return varint(len(text)) + text
    if kind == STRUCT:
        return packed(value)
    if kind == LIST:
        of, values = value
        head = bytes([len(values) << 4 | of]) if len(values) < _SHORT else bytes([0xF0 | of]) + varint(len(values))
        return head + b"".join(_value(of, each) for each in values)
    return signed_varint(value)
