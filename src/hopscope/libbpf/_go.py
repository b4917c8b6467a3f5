# SPDX-License-Identifier: Apache-2.0
"""Functions of Go programs: where they begin, and where they return, as the table says by which Go unwinds stacks.

Every Go program has that table, stripped or not: it has the functions' names, and for each instruction how far the
stack pointer is from where the function was entered (``internal/abi/symtab.go``, ``cmd/link/internal/ld/pcln.go``).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError
from hopscope.libbpf._elf import sections_by_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hopscope.libbpf._elf import Section

# Since Go 1.18, and since 1.20; before, it had another form.
_MAGIC: Final = frozenset({0xFFFFFFF0, 0xFFFFFFF1})
_TABLES: Final = (".gopclntab", ".data.rel.ro.gopclntab")
# Magic, the unit of instructions' lengths, bytes of a pointer; then the number of functions and files, where the code
# begins, and where in the table names, units, files, the tables of instructions, and functions are.
_HEADER: Final = struct.Struct("<I2xBB8Q")
_POINTER: Final = 8
# No function has more bytes, and no number more bits.
_LONGEST: Final = 1 << 24
_MOST_BITS: Final = 35
# Each has a probe.
_MOST_RETURNS: Final = 256
_EM_X86_64: Final = 62
_RET: Final = 0xC3
# A function begins by comparing the stack pointer, or where it will be, with the stack's lower end. Kernels execute
# that by a single step, which takes longer than all else of a probe, and the jump behind it without one. When the stack
# has grown, both come again.
_COMPARES: Final = re.compile(
    rb"(?:(?:\x4c\x8d\x64\x24.|\x4c\x8d\xa4\x24....)\x4d|\x49)\x3b\x66\x10(?=\x0f\x86|\x76)", re.DOTALL
)


class GoFunction(NamedTuple):
    """A function of a Go program.

    Attributes
    ----------
    entry
        Where in the file it begins: its first instruction, or the jump that follows when it has looked at its stack.
    returns
        Where the instructions are by which it returns.
    """

    entry: int
    returns: tuple[int, ...]


def go_functions(elf: bytes, names: Collection[str]) -> dict[str, GoFunction]:
    """Return those of these functions that a Go program for x86-64 has; nothing of other files.

    Raises
    ------
    FormatError
        It is a Go program, whose table is of another form, or damaged.
    """
    try:
        sections = sections_by_name(elf)
        table = next((sections[name] for name in _TABLES if name in sections), None)
        if table is None or ".text" not in sections or not any(name.encode() in elf for name in names):
            return {}
        return _functions(elf, table, sections[".text"], names)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise FormatError("the file is damaged") from error


def _functions(elf: bytes, table: Section, text: Section, names: Collection[str]) -> dict[str, GoFunction]:
    content = elf[table.offset : table.offset + table.size]
    magic, _, pointer, count, _, code, named, _, _, stacks, listed = _HEADER.unpack_from(content)
    machine = int.from_bytes(elf[18:20], "little")
    if magic not in _MAGIC or pointer != _POINTER:
        raise FormatError("it was built with a version of Go whose functions are not known (1.18 and later are)")
    if machine != _EM_X86_64:
        raise FormatError("Go's functions are known on x86-64 alone")
    found = {}
    # (entry, function), both of 32 bits, from here on.
    entries, functions = np.frombuffer(content, "<u4", 2 * count, listed).reshape(-1, 2).T
    words = np.frombuffer(content, "<u4", (len(content) - listed) // 4, listed)
    name_offsets = words[functions // 4 + 1]
    for name in names:
        at = content.find(b"\0" + name.encode() + b"\0", named)
        for index in np.flatnonzero(name_offsets == at + 1 - named) if at >= 0 else ():
            entry = int(entries[index]) + (code or text.address) - text.address + text.offset
            if not text.offset <= entry < text.offset + text.size:
                raise ValueError
            steps = int(words[functions[index] // 4 + 4])
            returns = tuple(_returns(elf, entry, content, stacks + steps))
            if not 0 < len(returns) <= _MOST_RETURNS:
                raise FormatError(f"it is not known where {name} returns")
            looks = _COMPARES.match(elf, entry)
            found[name] = GoFunction(looks.end() if looks else entry, returns)
    return found


def _returns(elf: bytes, entry: int, content: bytes, at: int) -> Iterator[int]:
    """Yield where instructions return: the stack pointer has come back to where it was at the entry."""
    place, depth = entry, -1
    while True:
        change, at = _number(content, at)
        if not change and place != entry:
            return
        depth += ~(change >> 1) if change & 1 else change >> 1
        length, at = _number(content, at)
        if not length or place + length > entry + _LONGEST:
            raise ValueError
        if not depth and place != entry and elf[place] == _RET:
            yield place
        place += length


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and what comes behind it."""
    number = shift = 0
    while True:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > _MOST_BITS:
            raise ValueError
