# SPDX-License-Identifier: Apache-2.0
"""A BTF type as a NumPy dtype: the same bytes at the same offsets, or an error that names the member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError
from hopscope.libbpf._types import IntEncoding, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.libbpf._types import BtfType, TypeTable, Variable

_UNFIT: Final = {
    Kind.VOID: "void, which has no size",
    Kind.UNION: "a union, whose meaning depends on another member",
    Kind.FWD: "only declared, not defined",
    Kind.FLOAT: "a floating point number, which BPF programs cannot write",
    Kind.FUNC: "a function",
    Kind.FUNC_PROTO: "a function",
}
_POINTER_BYTES: Final = 8


class _Field(NamedTuple):
    name: str
    format: np.dtype[Any]
    offset: int


def of_type(table: TypeTable, type_id: int, where: str = "") -> np.dtype[Any]:
    """Return a type's dtype; `where` is the path of members that led here, for errors.

    Raises
    ------
    FormatError
        NumPy cannot hold it exactly.
    """
    found = table.resolve(type_id)
    where = where or found.name or f"type {type_id}"
    if found.kind == Kind.STRUCT:
        return _structured(_struct_fields(table, found, where), found.size, where)
    if found.kind == Kind.ARRAY:
        return _array(table, found, where)
    if found.kind == Kind.INT:
        return _integer(table, found, where)
    if found.kind in (Kind.ENUM, Kind.ENUM64):
        return np.dtype(f"{'i' if found.flag else 'u'}{found.size}")
    if found.kind == Kind.PTR:
        return np.dtype(f"u{_POINTER_BYTES}")
    raise FormatError(f"{where} is {_UNFIT.get(Kind(found.kind), 'of a kind without a size')}")


def of_section(table: TypeTable, variables: Iterable[Variable], size: int, where: str) -> np.dtype[np.void]:
    """Return the dtype of an ELF section of `size` bytes, a field a variable.

    Raises
    ------
    FormatError
        A variable's type does not have the size that the section has for it, or it has no dtype.
    """
    fields = []
    for variable in variables:
        found = of_type(table, variable.type_id, f"{where} {variable.name}")
        if found.itemsize != variable.size:
            raise FormatError(f"{where} {variable.name} takes {variable.size} bytes, its type {found.itemsize}")
        fields.append(_Field(variable.name, found, variable.offset))
    return _structured(fields, size, where)


def _structured(fields: list[_Field], size: int, where: str) -> np.dtype[np.void]:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(f"{where} has two members {name}")
    for field in fields:
        if field.offset + field.format.itemsize > size:
            raise FormatError(f"{where}.{field.name} reaches beyond the {size} bytes of {where}")
    return np.dtype(
        {
            "names": names,
            "formats": [field.format for field in fields],
            "offsets": [field.offset for field in fields],
            "itemsize": size,
        }
    )


def _struct_fields(table: TypeTable, of: BtfType, where: str) -> list[_Field]:
    fields: list[_Field] = []
    for member in table.members(of):
        path = f"{where}.{member.name or '(anonymous)'}"
        if member.bitfield_bits or member.offset_bits % 8:
            raise FormatError(f"{path} is a bitfield, which has no dtype")
        offset = member.offset_bits // 8
        inner = table.resolve(member.type_id)
        if not member.name and inner.kind == Kind.STRUCT:
            nested = _struct_fields(table, inner, where)
            fields += [_Field(field.name, field.format, offset + field.offset) for field in nested]
        else:
            fields.append(_Field(member.name, of_type(table, member.type_id, path), offset))
    return fields


def _array(table: TypeTable, of: BtfType, where: str) -> np.dtype[Any]:
    # NumPy would keep arrays in arrays, each of one dimension.
    shape: list[int] = []
    element = of
    while element.kind == Kind.ARRAY:
        element_id, count = table.array(element)
        shape.append(count)
        element = table.resolve(element_id)
    if 0 in shape:
        raise FormatError(f"{where} is an array without a size")
    # Only `char` itself is text: __s8 is `signed char`, __u8 `unsigned char`.
    if element.kind == Kind.INT and element.name == "char" and element.size == 1:
        text = np.dtype(f"S{shape.pop()}")
        return np.dtype((text, tuple(shape))) if shape else text
    return np.dtype((of_type(table, element.id, where), tuple(shape)))


def _integer(table: TypeTable, of: BtfType, where: str) -> np.dtype[Any]:
    encoding, offset_bits, bits = table.integer(of)
    if offset_bits or bits != of.size * 8:
        raise FormatError(f"{where} is a bitfield, which has no dtype")
    if of.size not in (1, 2, 4, 8):
        raise FormatError(f"{where} is an integer of {of.size} bytes, which NumPy does not have")
    if encoding & IntEncoding.BOOL:
        if of.size != 1:
            raise FormatError(f"{where} is a bool of {of.size} bytes, which NumPy does not have")
        return np.dtype(np.bool_)
    return np.dtype(f"{'i' if encoding & IntEncoding.SIGNED else 'u'}{of.size}")
