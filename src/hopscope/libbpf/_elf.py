# SPDX-License-Identifier: Apache-2.0
"""Other instructions for a function of a compiled object, before it is loaded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SHT_SYMTAB: Final = 2
_STT_FUNC: Final = 2


class _Section(NamedTuple):
    kind: int
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


def _sections(elf: bytes) -> Iterator[_Section]:
    header = _HEADER.unpack_from(elf)
    if not header[0].startswith(b"\x7fELF\2\1"):
        raise FormatError("this is no 64-bit little-endian object file")
    start, size, count = header[6], header[11], header[12]
    for index in range(count):
        section = _SECTION.unpack_from(elf, start + index * size)
        yield _Section(section[1], section[4], section[5], section[6])
