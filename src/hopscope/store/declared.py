# SPDX-License-Identifier: Apache-2.0
"""Check a JSON document against the types that a dataclass declares, before anything uses it.

Whatever a declared type does not say is refused, at any depth: so that what reads a document later needs no checks.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Declared = TypeVar("Declared")

# The longest texts that a recorder writes are a verifier's complaints.
_TEXT_CHARACTERS: Final = 16_384
_WHOLE: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class In:
    """Says in ``Annotated[int, In(range(…))]`` which whole numbers are meant."""

    numbers: range


@dataclass(frozen=True, slots=True)
class Read:
    """Says in ``Annotated[X, Read(function)]`` what makes an X of a JSON object, or raises ValueError."""

    function: Callable[[dict[str, Any]], Any]


def read_as(kind: type[Declared], document: Mapping[str, Any]) -> Declared:
    """Return the dataclass that a JSON object describes. Members that it does not declare are left out.

    Raises
    ------
    ValueError
        A member is missing, or is not of the declared type.
    """
    found: Declared = _object(kind, document, kind.__name__)
    return found


def _checked(kind: Any, value: object, where: str) -> Any:  # noqa: ANN401, PLR0911 # of the declared type; one return a kind of type
    origin, of = get_origin(kind), get_args(kind)
    if kind is Any:
        return _any(value, where)
    if origin is Annotated:
        return _annotated(of[1], value, where)
    if origin is Required:
        return _checked(of[0], value, where)
    if origin in {Union, UnionType}:
        return None if value is None and NoneType in of else _checked(of[0], value, where)
    if origin is Literal:
        return _expect(value in of if isinstance(value, str) else False, value, where)
    if origin is list:
        _expect(isinstance(value, list), value, where)
        return [_checked(of[0], each, f"{where}[{place}]") for place, each in enumerate(value)]  # type: ignore[arg-type, var-annotated] # it is a list
    if origin is tuple:
        _expect(isinstance(value, list) and len(value) == len(of), value, where)
        return tuple(_checked(each, one, where) for each, one in zip(of, value, strict=True))  # type: ignore[call-overload] # as above
    if origin is dict:
        _expect(isinstance(value, dict), value, where)
        return {_key(of[0], key, where): _checked(of[1], each, f"{where}.{key}") for key, each in value.items()}  # type: ignore[attr-defined] # it is a dict
    if is_dataclass(kind) or is_typeddict(kind):
        return _object(kind, value, where)
    return _plain(kind, value, where)


def _annotated(note: In | Read, value: object, where: str) -> object:
    if isinstance(note, In):
        return _whole(value, where, note.numbers)
    return note.function(_checked(dict[str, Any], value, where))


def _object(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 # as above
    _expect(isinstance(value, dict), value, where)
    types = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        # Its own attribute does not know of annotations that are evaluated later.
        needed = {name for name, each in types.items() if kind.__total__ or get_origin(each) is Required}
    else:
        needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    if missing := sorted(needed - value.keys()):
        raise ValueError(f"{where} has no {missing[0]}")
    found = {name: _checked(types[name], each, f"{where}.{name}") for name, each in value.items() if name in types}
    return kind(**found)


def _plain(kind: Any, value: object, where: str) -> object:  # noqa: ANN401 # int, str, float or bool
    if kind is int:
        return _whole(value, where, _WHOLE)
    if kind is str:
        return _text(value, where)
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return _expect(number and math.isfinite(value), value, where)  # type: ignore[arg-type] # it is a number
    return _expect(type(value) is kind, value, where)


def _any(value: object, where: str) -> object:
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, list):
        return [_any(each, where) for each in value]
    if isinstance(value, dict):
        return {_text(key, where): _any(each, where) for key, each in value.items()}
    return value if value is None or isinstance(value, bool) else _plain(float, value, where)


def _key(kind: Any, key: str, where: str) -> object:  # noqa: ANN401 # str, or whole numbers
    _text(key, where)
    if kind is str:
        return key
    _expect(key.isascii() and key.isdecimal() and len(key) < len(str(_WHOLE.stop)), key, where)
    return _checked(kind, int(key), where)


def _whole(value: object, where: str, numbers: range) -> object:
    return _expect(type(value) is int and value in numbers, value, where)


def _text(value: object, where: str) -> object:
    if isinstance(value, str) and len(value) > _TEXT_CHARACTERS:
        raise ValueError(f"{where} has {len(value):,} characters")
    _expect(isinstance(value, str), value, where)
    str(value).encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
    return value


def _expect(holds: bool, value: object, where: str) -> object:  # noqa: FBT001 # it is the condition
    if not holds:
        shown = repr(value)
        raise ValueError(f"{where} cannot be {shown if len(shown) < 40 else f'{shown[:40]}…'}")
    return value
