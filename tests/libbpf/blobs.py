# SPDX-License-Identifier: Apache-2.0
"""A writer of raw BTF, so that types can be tested that no compiler would make."""

from __future__ import annotations

import struct

from hopscope.libbpf._types import Kind


class BlobWriter:
    """Collects types; each method returns the new type's id."""

    def __init__(self) -> None:
        self._types = b""
        self._strings = b"\0"
        self._count = 0

    def integer(self, name: str, size: int, *, encoding: int = 0, bits: int | None = None, offset: int = 0) -> int:
        word = encoding << 24 | offset << 16 | (size * 8 if bits is None else bits)
        return self._add(name, Kind.INT, size, struct.pack("=I", word))

    def refers(self, kind: Kind, to: int, name: str = "") -> int:
        return self._add(name, kind, to)

    def array(self, element: int, count: int, index: int) -> int:
        return self._add("", Kind.ARRAY, 0, struct.pack("=III", element, index, count))

    def composite(
        self,
        name: str,
        size: int,
        members: list[tuple[str, int, int]],
        *,
        kind: Kind = Kind.STRUCT,
        bitfields: bool = False,
    ) -> int:
        """Add a struct; a member is its name, type and offset in bits (or, with `bitfields`, BTF's offset word)."""
        tail = b"".join(struct.pack("=III", self._string(member), *rest) for member, *rest in members)
        return self._add(name, kind, size, tail, bitfields << 31 | len(members))

    def enum(self, name: str, values: dict[str, int], *, size: int = 4, signed: bool = False) -> int:
        tail = b"".join(struct.pack("=II", self._string(key), value & 0xFFFFFFFF) for key, value in values.items())
        return self._add(name, Kind.ENUM, size, tail, signed << 31 | len(values))

    def enum64(self, name: str, values: dict[str, int], *, signed: bool = False) -> int:
        tail = b"".join(
            struct.pack("=III", self._string(key), value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF)
            for key, value in values.items()
        )
        return self._add(name, Kind.ENUM64, 8, tail, signed << 31 | len(values))

    def raw(self, name: str, kind: Kind, size: int) -> int:
        return self._add(name, kind, size)

    def blob(self) -> bytes:
        header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings))
        return header + self._types + self._strings

    def _add(self, name: str, kind: Kind, size: int, tail: bytes = b"", extra: int = 0) -> int:
        """Add a type; `extra` is what its info word has beside the kind: the number of entries, and the flag."""
        self._types += struct.pack("=III", self._string(name), kind << 24 | extra, size) + tail
        self._count += 1
        return self._count

    def _string(self, text: str) -> int:
        if not text:
            return 0
        offset = len(self._strings)
        self._strings += text.encode() + b"\0"
        return offset
