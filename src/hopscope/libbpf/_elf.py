# SPDX-License-Identifier: Apache-2.0
"""Functions of ELF files: other instructions for one before it is loaded, and where they are in a library."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Collection, Iterator

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
# As _SYMBOL, many at once.
_SYMBOLS: Final = np.dtype([("name", "<u4"), ("kind", "<u4"), ("value", "<u8"), ("size", "<u8")])
_NOTE: Final = struct.Struct("<III")
_NT_GNU_BUILD_ID: Final = 3
_SHT_NOTE: Final = 7
_SHT_SYMTAB: Final = 2
_SHT_DYNSYM: Final = 11
# Longer names are not looked for.
_LONGEST_NAME: Final = 128
_STT_FUNC: Final = 2


class Section(NamedTuple):
    """A part of a file: where it is in memory, and in the file."""

    name: int
    kind: int
    address: int
    offset: int
    size: int
    link: int


def with_function(elf: bytes, name: str, made: Callable[[int], bytes]) -> bytes:
    """Return an object in which a function consists of other instructions.

    Parameters
    ----------
    elf
        A 64-bit little-endian object file.
    name
        Of the function, to which no relocations belong.
    made
        Gives the instructions, asked for the number of bytes that the function has.

    Raises
    ------
    FormatError
        It is no such file, has no such function, or the instructions have not that size.
    """
    try:
        place, size = _function(elf, name)
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError("the object file is damaged") from error
    code = made(size)
    if len(code) != size or place + size > len(elf):
        raise FormatError(f"function {name} has {size} bytes, {len(code)} were given")
    return elf[:place] + code + elf[place + size :]


def function_offsets(elf: bytes, names: Collection[str]) -> dict[str, int]:
    """Return where in the file of a library or a program those of these functions begin that it defines.

    What is not needed to run it may be missing (strip(1)): functions that others call are found nevertheless.

    Raises
    ------
    FormatError
        It is no 64-bit little-endian ELF file, or is damaged.
    """
    wanted = {name.encode(): name for name in names}
    found: dict[str, int] = {}
    try:
        sections = list(_sections(elf))
        for table in sections if any(name in elf for name in wanted) else ():
            if table.kind not in {_SHT_SYMTAB, _SHT_DYNSYM}:
                continue
            strings = sections[table.link].offset
            for where, info, _, section, value, _ in _SYMBOL.iter_unpack(elf[table.offset : table.offset + table.size]):
                if info & 15 != _STT_FUNC or not section:  # 0: another file defines it
                    continue
                start = strings + where
                end = elf.find(b"\0", start, start + _LONGEST_NAME)
                # -1: a longer name than any that is wanted, and a slice would be the rest of the file.
                if end >= 0 and (name := wanted.get(elf[start:end])) and name not in found:
                    found[name] = value - sections[section].address + sections[section].offset
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError("the file is damaged") from error
    return found


def entry_offset(elf: bytes) -> int:
    """Return where in the file of a program its first instruction is.

    Raises
    ------
    FormatError
        It is no 64-bit little-endian ELF file, or is damaged.
    """
    try:
        entry = _HEADER.unpack_from(elf)[4]
        sections = list(_sections(elf))
    except (struct.error, IndexError) as error:
        raise FormatError("the file is damaged") from error
    for section in sections:
        if section.address and section.address <= entry < section.address + section.size:
            return int(entry - section.address + section.offset)
    raise FormatError("the file does not say where its code is")


def sections_by_name(elf: bytes) -> dict[str, Section]:
    """Return the sections of a file that have names.

    Raises
    ------
    FormatError
        It is no 64-bit little-endian ELF file.
    struct.error, IndexError, ValueError
        It is damaged.
    """
    sections = list(_sections(elf))
    names = sections[_HEADER.unpack_from(elf)[13]].offset if sections else 0
    found = {}
    for section in sections:
        start = names + section.name
        found[elf[start : elf.index(b"\0", start)].decode(errors="replace")] = section
    return found


def gnu_build_id(notes: bytes) -> str | None:
    """Return the build ID among the notes of a program or a kernel, in hexadecimal digits; None where there is none."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        begin = at + _NOTE.size + _padded(name_size)
        if kind == _NT_GNU_BUILD_ID and notes[at + _NOTE.size : at + _NOTE.size + name_size] == b"GNU\0":
            return notes[begin : begin + size].hex() or None
        at = begin + _padded(size)
    return None


def elf_build_id(elf: bytes | mmap.mmap) -> str | None:
    """Return the build ID of a file; None where it has none.

    Raises
    ------
    FormatError
        It is no 64-bit little-endian ELF file.
    struct.error, IndexError
        It is damaged.
    """
    notes = (each for each in _sections(elf) if each.kind == _SHT_NOTE)
    return next((found for each in notes if (found := gnu_build_id(elf[each.offset : each.offset + each.size]))), None)


def elf_symbol(elf: bytes | mmap.mmap, name: str) -> int | None:
    """Return the value of a symbol, also of a large file; None where there is none. It raises as `elf_build_id`."""
    sections = list(_sections(elf))
    for table in sections:
        if table.kind != _SHT_SYMTAB:
            continue
        strings = sections[table.link]
        place = elf.find(b"\0" + name.encode() + b"\0", strings.offset, strings.offset + strings.size)
        symbols = np.frombuffer(elf[table.offset : table.offset + table.size], _SYMBOLS)
        found = symbols["value"][symbols["name"] == place + 1 - strings.offset]
        if place >= 0 and len(found):
            return int(found[0])
    return None


def _padded(size: int) -> int:
    return (size + 3) & ~3


def _function(elf: bytes, name: str) -> tuple[int, int]:
    sections = list(_sections(elf))
    for table in sections:
        if table.kind != _SHT_SYMTAB:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            where, info, _, section, value, size = _SYMBOL.unpack_from(elf, at)
            start = names + where
            if info & 15 == _STT_FUNC and elf[start : elf.index(b"\0", start)] == name.encode():
                return sections[section].offset + value, size
    raise FormatError(f"the object file has no function {name}")


def _sections(elf: bytes | mmap.mmap) -> Iterator[Section]:
    header = _HEADER.unpack_from(elf)
    if not header[0].startswith(b"\x7fELF\2\1"):
        raise FormatError("this is no 64-bit little-endian object file")
    start, size, count = header[6], header[11], header[12]
    for index in range(count):
        section = _SECTION.unpack_from(elf, start + index * size)
        yield Section(section[0], section[1], section[3], section[4], section[5], section[6])
