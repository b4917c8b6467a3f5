# SPDX-License-Identifier: Apache-2.0
"""BTF as it is stored: types by number, and what stands behind each of them.

libbpf checks the bytes and keeps the index; Python reads only the types that are asked for. The kernel's BTF has more
than 100,000. The format is described in the kernel's Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.libbpf._abi import decoded
from hopscope.libbpf._library import lib

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPE_BYTES: Final = 12


class Kind(IntEnum):
    """``BTF_KIND_*``."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


class IntEncoding(IntFlag):
    """``BTF_INT_*``."""

    SIGNED = 1
    CHAR = 2
    BOOL = 4


class BtfType(NamedTuple):
    """One ``struct btf_type``, its place in memory, and `vlen`, the number of entries that follow it there."""

    id: int
    kind: int
    name: str
    flag: bool
    vlen: int
    size: int
    address: int

    @property
    def ref(self) -> int:
        """The id of the type that this one points to, qualifies or names."""
        return self.size


class Member(NamedTuple):
    """One member of a struct or union; `bitfield_bits` is 0 for one that is no bitfield."""

    name: str
    type_id: int
    offset_bits: int
    bitfield_bits: int


class Parameter(NamedTuple):
    """One argument of a function."""

    name: str
    type_id: int


class Variable(NamedTuple):
    """One variable of an ELF section (``struct btf_var_secinfo``)."""

    name: str
    type_id: int
    offset: int
    size: int


class TypeTable:
    """The types of one BTF blob.

    Parameters
    ----------
    handle
        libbpf's ``struct btf *``, which is freed with this object.
    source
        What it is called in errors.
    """

    def __init__(self, handle: int, source: str) -> None:
        self._handle = handle
        self.source = source
        weakref.finalize(self, lib().btf__free, handle)

    def find(self, name: str, kind: Kind) -> int | None:
        """Return the id of the first type of that name and kind."""
        found = int(lib().btf__find_by_name_kind(self._handle, name.encode(), kind))
        return found if found > 0 else None

    def has_section(self, name: str) -> bool:
        """Tell whether a section of global variables is described."""
        return self.find(name, Kind.DATASEC) is not None

    def types(self) -> Iterator[BtfType]:
        """Return every type; meant for the small BTF of an object."""
        return (self.type(type_id) for type_id in range(1, int(lib().btf__type_cnt(self._handle))))

    def type(self, type_id: int) -> BtfType:
        """Return one type.

        Raises
        ------
        FormatError
            There is no type of that id.
        """
        address = lib().btf__type_by_id(self._handle, type_id)
        if not address:
            raise FormatError(f"{self.source} has no type {type_id}")
        name_offset, info, size = struct.unpack("=III", ctypes.string_at(address, _TYPE_BYTES))
        return BtfType(
            id=type_id,
            kind=info >> 24 & 0x1F,
            name=self._name(name_offset),
            flag=bool(info >> 31),
            vlen=info & 0xFFFF,
            size=size,
            address=address,
        )

    def resolve(self, type_id: int) -> BtfType:
        """Return the type behind typedefs and qualifiers."""
        through = {Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG}
        # A chain longer than this is a loop.
        for _ in range(64):
            found = self.type(type_id)
            if found.kind not in through:
                return found
            type_id = found.ref
        raise FormatError(f"{self.source} has a type that refers to itself: {found.name or found.id}")

    def integer(self, of: BtfType) -> tuple[IntEncoding, int, int]:
        """Return an INT's encoding, offset in bits and size in bits."""
        (word,) = self._words(of, 1)
        (value,) = word
        return IntEncoding(value >> 24 & 0x7), value >> 16 & 0xFF, value & 0xFF

    def array(self, of: BtfType) -> tuple[int, int]:
        """Return an ARRAY's element type id and its number of elements."""
        (words,) = self._words(of, 3)
        return words[0], words[2]

    def members(self, of: BtfType) -> list[Member]:
        """Return a STRUCT's or UNION's members."""
        found = []
        for name, type_id, offset in self._words(of, 3, of.vlen):
            bits, offset_bits = (offset >> 24, offset & 0xFFFFFF) if of.flag else (0, offset)
            found.append(Member(self._name(name), type_id, offset_bits, bits))
        return found

    def parameters(self, of: BtfType) -> list[Parameter]:
        """Return what a FUNC_PROTO's function is called with."""
        return [Parameter(self._name(name), type_id) for name, type_id in self._words(of, 2, of.vlen)]

    def enumerators(self, of: BtfType) -> dict[str, int]:
        """Return the names and values of an ENUM or ENUM64."""
        if of.kind == Kind.ENUM64:
            wide = self._words(of, 3, of.vlen)
            values = {self._name(name): low | high << 32 for name, low, high in wide}
        else:
            values = {self._name(name): value for name, value in self._words(of, 2, of.vlen)}
        bits = 64 if of.kind == Kind.ENUM64 else 32
        if not of.flag:
            return values
        return {name: value - (1 << bits) if value >> (bits - 1) else value for name, value in values.items()}

    def variables(self, section: str) -> list[Variable]:
        """Return the variables of a section of data; only known after libbpf has opened the object.

        Raises
        ------
        FormatError
            There is no such section.
        """
        found = self.find(section, Kind.DATASEC)
        if found is None:
            raise FormatError(f"{self.source} has no section {section}")
        datasec = self.type(found)
        variables = []
        for type_id, offset, size in self._words(datasec, 3, datasec.vlen):
            variable = self.type(type_id)
            variables.append(Variable(variable.name, variable.ref, offset, size))
        return variables

    def _words(self, of: BtfType, width: int, count: int = 1) -> list[tuple[int, ...]]:
        """Return what follows a type: `count` entries of `width` unsigned words."""
        raw = ctypes.string_at(of.address + _TYPE_BYTES, 4 * width * count)
        return list(struct.iter_unpack(f"={width}I", raw))

    def _name(self, offset: int) -> str:
        return decoded(lib().btf__name_by_offset(self._handle, offset))
