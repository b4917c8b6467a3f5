# SPDX-License-Identifier: Apache-2.0
"""Values that a kernel function is called with or returns, by the names that BTF has: where they are, and of what type.

An argument is where the calling convention has it when the function begins. One that is a structure, or that comes
after six others, is not where a number would be, so that it and those behind it are out of reach.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopFetchFrom, HopFetchKind, HopFetchLimits
from hopscope.errors import UsageError
from hopscope.kernel.tracepoint_columns import CALLER, STACK
from hopscope.kernel.tracepoint_format import Field
from hopscope.libbpf._types import IntEncoding, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.libbpf import Btf
    from hopscope.libbpf._types import BtfType, Member, Parameter

RESULT: Final = "ret"
_REGISTERS: Final = 6
_POINTER_BYTES: Final = 8
_STRUCTURES: Final = (Kind.STRUCT, Kind.UNION)
_IN_NETWORK_ORDER: Final = ("__be16", "__be32", "__be64")
# Where text is wanted of them, not a number.
_ADDRESSES: Final = {"in6_addr": 16, "in_addr": 4}
_BYTES: Final = int(HopFetchLimits.HOP_FETCH_BYTES)
# Columns that have this meaning in all tables of functions.
_OURS: Final = frozenset({CALLER.name, STACK.name, "unread"})
_SHOWN: Final = 24
_CLOSE: Final = 3


@dataclass(frozen=True, slots=True)
class Value:
    """What is to be read.

    Attributes
    ----------
    path
        As the user names it.
    name
        Of its column.
    declaration
        In C, as far as that is worth while.
    argument
        Number of the argument, or :attr:`~hopscope.bpf.layout.HopFetchFrom.HOP_FETCH_RESULT`.
    offsets
        Of the pointers on the way there, the last one of the value itself; none: the argument is it.
    kind
        A number, text, or other bytes.
    size, item_bytes
        Of all of it, and of an item of an array.
    signed
        Its numbers are.
    first_bit, bits
        Of the number, in the bytes that are read.
    in_network_order
        It is a number that is to be turned around.
    """

    path: str
    name: str
    declaration: str
    argument: int
    offsets: tuple[int, ...]
    kind: HopFetchKind
    size: int
    item_bytes: int = 0
    signed: bool = False
    first_bit: int = 0
    bits: int = 0
    in_network_order: bool = False

    @property
    def words(self) -> int:
        """How many words of a record it takes."""
        return 1 if self.kind == HopFetchKind.HOP_FETCH_NUMBER else HopFetchLimits.HOP_FETCH_BYTES // 8

    @property
    def read_bytes(self) -> int:
        """How many bytes are read of memory; a field of bits may reach into one more."""
        return -(-(self.first_bit + self.bits) // 8) if self.bits % 8 else self.size

    @property
    def is_compared_signed(self) -> bool:
        """Whether comparisons are of signed numbers: an unsigned one of less than 64 bits is none below 0."""
        return self.signed or self.bits < 8 * _POINTER_BYTES

    def require_number(self, number: int) -> None:
        """Return if it can be compared with a number.

        Raises
        ------
        UsageError
            It cannot.
        """
        if self.kind != HopFetchKind.HOP_FETCH_NUMBER:
            raise UsageError(
                f"{self.path} is no number ({self.declaration}), and cannot be compared with {number}",
                "Filter with `hopscope sql`",
            )
        least = -(1 << 63) if self.is_compared_signed else 0
        if not least <= number < least + (1 << 64):
            raise UsageError(
                f"{self.path} ({self.declaration}) is never {number}",
                f"Compare it with a number from {least} to {least + (1 << 64) - 1}",
            )

    def field(self, offset: int) -> Field:
        """Return it as a field of a record, in which it is there."""
        if self.kind == HopFetchKind.HOP_FETCH_NUMBER:
            size = 8 if self.bits % 8 else self.size
            return Field(self.name, self.declaration, offset, size, size, 1, self.signed)
        is_text = self.kind == HopFetchKind.HOP_FETCH_TEXT
        items = self.size // self.item_bytes
        return Field(self.name, self.declaration, offset, self.size, self.item_bytes, items, self.signed, is_text)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path has come to: at the end of pointers, `offset` behind the last one, or in a register (None)."""

    type_id: int
    pointers: tuple[int, ...] = ()
    offset: int | None = None
    first_bit: int = 0
    bits: int = 0


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a type is as a value; `is_pointed_to`: one pointer further."""

    kind: HopFetchKind
    size: int
    item_bytes: int = 0
    signed: bool = False
    is_pointed_to: bool = False


class FunctionTypes:
    """What BTF says of a function.

    Parameters
    ----------
    btf
        The kernel's.
    function
        Its name.
    returns
        It is asked for what it returns, not for what it is called with.

    Raises
    ------
    UsageError
        BTF does not have it.
    """

    def __init__(self, btf: Btf, function: str, *, returns: bool) -> None:
        found = btf.find(function, Kind.FUNC)
        if found is None:
            raise UsageError(
                f"The kernel's BTF does not describe {function}, so that what it is called with has no names",
                "It describes functions that are not in a module and that the compiler has not changed; name a caller "
                "or a callee, or record it without values",
            )
        self._btf = btf
        self._function = function
        self._returns = returns
        self._prototype = btf.resolve(btf.type(found).ref)

    def value(self, path: str) -> Value:
        """Return what a path names: an argument or ``ret``, and members, such as ``sk.sk_sndbuf``.

        Raises
        ------
        UsageError
            There is no such thing, or it is no number, text or address.
        """
        first, *members = path.split(".")
        argument, place = self._first(first)
        so_far = first
        for member in members:
            place = self._member(place, so_far, member)
            so_far = f"{so_far}.{member}"
        return self._value(path, argument, place)

    def _first(self, name: str) -> tuple[int, _Place]:
        parameters = self._btf.parameters(self._prototype)
        names = [each.name for each in parameters]
        if self._returns:
            if name != RESULT:
                raise UsageError(
                    f"return:{self._function} has no value {name}: at its return, only {RESULT} is known",
                    f"function:{self._function} has its arguments: {', '.join(names) or 'none'}",
                )
            if self._btf.resolve(self._prototype.ref).kind == Kind.VOID:
                raise UsageError(
                    f"{self._function} returns nothing", f"Record return:{self._function} without {RESULT}"
                )
            return HopFetchFrom.HOP_FETCH_RESULT, _Place(self._prototype.ref)
        if name == RESULT and name not in names:
            raise UsageError(
                f"What {self._function} returns is not known when it is called",
                f"Record 'return:{self._function} {RESULT}'",
            )
        if name not in names:
            raise UsageError(f"{self._function} has no argument {name}", f"Its arguments: {', '.join(names) or 'none'}")
        index = names.index(name)
        if index >= _REGISTERS or any(self._is_wide(each) for each in parameters[: index + 1]):
            raise UsageError(
                f"Where {self._function} has its argument {name} is not known: it is not among the first "
                f"{_REGISTERS}, or it or one before it is a structure",
                f"Its arguments: {', '.join(names)}",
            )
        return index, _Place(parameters[index].type_id)

    def _is_wide(self, parameter: Parameter) -> bool:
        found = self._btf.resolve(parameter.type_id)
        return found.kind in (*_STRUCTURES, Kind.FLOAT) or (found.kind != Kind.PTR and found.size > _POINTER_BYTES)

    def _member(self, place: _Place, path: str, name: str) -> _Place:
        found = self._btf.resolve(place.type_id)
        pointers, offset = place.pointers, place.offset
        if found.kind == Kind.PTR:
            pointers = pointers if offset is None else (*pointers, offset)
            offset = 0
            found = self._btf.resolve(found.ref)
        if found.kind == Kind.FWD:
            raise UsageError(f"What {path} points to is not described in the kernel's BTF", "Name another value")
        if offset is None or found.kind not in _STRUCTURES:
            raise UsageError(
                f"{path} is {self._declared(place.type_id)}, which has no members", f"Name {path} by itself"
            )
        member = self._find(found, name)
        if member is None:
            raise self._no_member(found, path, name)
        bits = offset * 8 + member.offset_bits
        if member.bitfield_bits:
            return _Place(member.type_id, pointers, bits // 8, bits % 8, member.bitfield_bits)
        return _Place(member.type_id, pointers, bits // 8)

    def _find(self, structure: BtfType, name: str) -> Member | None:
        """Return a member, by its offset in the whole structure; it may be in one without a name."""
        for member in self._btf.members(structure):
            if member.name == name:
                return member
            inner = self._btf.resolve(member.type_id)
            if not member.name and inner.kind in _STRUCTURES and (found := self._find(inner, name)):
                return found._replace(offset_bits=member.offset_bits + found.offset_bits)
        return None

    def _names(self, structure: BtfType) -> list[str]:
        names = []
        for member in self._btf.members(structure):
            inner = self._btf.resolve(member.type_id)
            names += [member.name] if member.name else self._names(inner) if inner.kind in _STRUCTURES else []
        return names

    def _no_member(self, structure: BtfType, path: str, name: str) -> UsageError:
        names = self._names(structure)
        close = difflib.get_close_matches(name, names, _CLOSE)
        step = f"Did you mean {' or '.join(close)}?" if close else f"Its members: {_listed(names)}"
        return UsageError(f"{path} has no member {name}", step)

    def _value(self, path: str, argument: int, place: _Place) -> Value:
        place = self._only_member(place)
        name = path.rpartition(".")[2]
        name = f"field_{name}" if name in _OURS else name
        shape = self._shape(place, name)
        if shape is None:
            raise self._no_value(path, place)
        offsets = place.pointers if place.offset is None else (*place.pointers, place.offset)
        if shape.is_pointed_to:
            offsets = (*offsets, 0)
        most = int(HopFetchLimits.HOP_FETCH_HOPS)
        if len(offsets) > most:
            raise UsageError(
                f"{path} leads through {len(offsets)} pointers, at most {most} can be followed", "Name something nearer"
            )
        return Value(
            path,
            name,
            f"{self._declared(place.type_id)} {path}",
            argument,
            offsets,
            shape.kind,
            shape.size,
            shape.item_bytes,
            shape.signed,
            place.first_bit,
            place.bits or (8 * shape.size if shape.kind == HopFetchKind.HOP_FETCH_NUMBER else 0),
            self._btf.type(place.type_id).name in _IN_NETWORK_ORDER,
        )

    def _shape(self, place: _Place, name: str) -> _Shape | None:
        found = self._btf.resolve(place.type_id)
        is_address = self._btf.type(place.type_id).name == "__be32" and "addr" in name
        if place.offset is not None and (is_address or found.name in _ADDRESSES):
            return _Shape(HopFetchKind.HOP_FETCH_RAW, _ADDRESSES.get(found.name, 4), 1)
        if found.kind == Kind.PTR:
            if self._is_char(found.ref):
                return _Shape(HopFetchKind.HOP_FETCH_TEXT, _BYTES, 1, is_pointed_to=True)
            return _Shape(HopFetchKind.HOP_FETCH_NUMBER, _POINTER_BYTES)
        if found.kind == Kind.INT and found.size <= _POINTER_BYTES:
            return _Shape(HopFetchKind.HOP_FETCH_NUMBER, found.size, signed=self._is_signed(found))
        if found.kind in (Kind.ENUM, Kind.ENUM64):
            return _Shape(HopFetchKind.HOP_FETCH_NUMBER, found.size, signed=found.flag)
        return self._array_shape(found) if found.kind == Kind.ARRAY else None

    def _array_shape(self, array: BtfType) -> _Shape | None:
        element, count = self._btf.array(array)
        item = self._btf.resolve(element)
        if self._is_char(element):
            return _Shape(HopFetchKind.HOP_FETCH_TEXT, min(count, _BYTES), 1)
        if item.kind != Kind.INT or not 0 < item.size * count <= _BYTES:
            return None
        return _Shape(HopFetchKind.HOP_FETCH_RAW, item.size * count, item.size, signed=self._is_signed(item))

    def _is_signed(self, number: BtfType) -> bool:
        return bool(self._btf.integer(number)[0] & IntEncoding.SIGNED)

    def _only_member(self, place: _Place) -> _Place:
        """Go on to what a structure consists of, where that is one thing: ``refcount_t`` is a number."""
        while place.offset is not None:
            found = self._btf.resolve(place.type_id)
            if found.kind != Kind.STRUCT or found.name in _ADDRESSES:
                break
            members = self._btf.members(found)
            if len(members) != 1 or members[0].bitfield_bits:
                break
            place = _Place(members[0].type_id, place.pointers, place.offset)
        return place

    def _no_value(self, path: str, place: _Place) -> UsageError:
        found = self._btf.resolve(place.type_id)
        what = f"{path} is {self._declared(place.type_id)}, which is no number, text or address"
        if found.kind in _STRUCTURES:
            return UsageError(what, f"Name one of its members: {_listed(self._names(found))}")
        return UsageError(what, "Name another value")

    def _is_char(self, type_id: int) -> bool:
        found = self._btf.resolve(type_id)
        return found.kind == Kind.INT and found.size == 1 and found.name == "char"

    def _declared(self, type_id: int) -> str:
        found = self._btf.type(type_id)
        words = {Kind.STRUCT: "struct", Kind.UNION: "union", Kind.ENUM: "enum", Kind.ENUM64: "enum", Kind.FWD: "struct"}
        if found.kind == Kind.PTR:
            return f"{self._declared(found.ref)} *" if found.ref else "void *"
        if found.kind == Kind.CONST:
            return f"const {self._declared(found.ref)}" if found.ref else "const void"
        if found.kind == Kind.ARRAY:
            element, count = self._btf.array(found)
            return f"{self._declared(element)}[{count}]"
        if found.kind == Kind.FUNC_PROTO:
            return "a function"
        if not found.name and found.kind not in words:
            return self._declared(found.ref)
        return f"{words.get(Kind(found.kind), '')} {found.name or '(without a name)'}".strip()


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
