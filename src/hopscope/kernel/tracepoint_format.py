# SPDX-License-Identifier: Apache-2.0
"""What fields a tracepoint has, by the ``format`` file of tracefs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hopscope.errors import FormatError

_LINE: Final = re.compile(r"^\tfield:(.*);\s*offset:(\d+);\s*size:(\d+);\s*(?:signed:(\d+);)?\s*$", re.MULTILINE)
# A type, with the length of a dynamic array; the name; the lengths of a fixed array.
_DECLARATION: Final = re.compile(
    r"^(?P<type>.*?)\s*(?P<dynamic>\[\])?\s*\b(?P<name>\w+)\s*(?P<lengths>(?:\[[^\]]*\])*)$"
)
# Of the words that C types consist of, without underscores and `_t`; in that order of importance.
_ITEM_BYTES: Final = {
    "char": 1, "bool": 1, "short": 2, "long": 8, "size": 8, "ssize": 8, "int": 4, "unsigned": 4, "signed": 4, "enum": 4,
    **{f"{kind}{bits}": bits // 8 for bits in (8, 16, 32, 64) for kind in ("u", "s", "be", "le", "int", "uint")},
}  # fmt: skip
_LOCATIONS: Final = {"__data_loc": "record", "__rel_loc": "field"}

Where: TypeAlias = Literal["here", "record", "field"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event.

    Attributes
    ----------
    name
        As the kernel has it.
    declaration
        In C.
    offset, size
        In the event's bytes.
    item_bytes, items
        Of an array; a number by itself is one item. 0 items: as many as each record says.
    signed
        Its numbers are.
    text
        It is a string, which ends with its first NUL.
    where
        Where its bytes are: ``here``; or the field is a 32-bit number that says so, the length in the upper half, in
        the lower one the offset from the start of the ``record``, or from the end of the ``field``.
    """

    name: str
    declaration: str
    offset: int
    size: int
    item_bytes: int
    items: int
    signed: bool = False
    text: bool = False
    where: Where = "here"


def parse_format(text: str) -> list[Field]:
    """Return an event's own fields, without those that all events have.

    Raises
    ------
    FormatError
        It is no such text.
    """
    if "format:" not in text:
        raise FormatError("a tracepoint's description has no line 'format:'")
    fields = [_field(*found.groups()) for found in _LINE.finditer(text)]
    return [field for field in fields if not field.name.startswith("common_")]


def _field(declaration: str, offset: str, size: str, signed: str | None) -> Field:
    parts = _DECLARATION.match(declaration.strip())
    if parts is None:
        raise FormatError(f"a tracepoint's field is declared as '{declaration}', which has no name")
    words = parts["type"].split()
    where: Where = "here"
    if words and words[0] in _LOCATIONS:
        where = "record" if words[0] == "__data_loc" else "field"
        words = words[1:]
    length, number = int(size), parts["lengths"]
    array = where != "here" or bool(number) or bool(parts["dynamic"])
    is_text = array and "*" not in words and words[-1:] == ["char"] and not {"unsigned", "signed"} & set(words)
    item = _item_bytes(words) if array else length
    if where == "here" and array:
        item = _fixed_item(item, length, number)
    items = 0 if where != "here" else length // item if item else 0
    return Field(parts["name"], declaration.strip(), int(offset), length, item, items, signed == "1", is_text, where)


def _fixed_item(guess: int, size: int, lengths: str) -> int:
    """Return the bytes of an item of an array, by its length where that is a number."""
    count = 1
    for each in re.findall(r"\[([^\]]*)\]", lengths):
        if not each.strip().isdecimal():
            return guess if guess and size % guess == 0 else 1
        count *= int(each)
    return size // count if count and size % count == 0 else 1


def _item_bytes(words: list[str]) -> int:
    """Return the bytes of a C type, as far as it is known; else 1."""
    if "*" in "".join(words):
        return 8
    named = {word.lstrip("_").removesuffix("_t") for word in words}
    return next((size for name, size in _ITEM_BYTES.items() if name in named), 1)
