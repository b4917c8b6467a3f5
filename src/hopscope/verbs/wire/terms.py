# SPDX-License-Identifier: Apache-2.0
"""A condition on events as a condition on the bytes of their frames: unsigned numbers in ranges, and bits.

What is not known in a frame is 0 there, and its flag is not set: so conditions select the same frames as events, also
those with ``not`` and ``!=``.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hopscope.errors import UsageError
from hopscope.live.recorder.tables import point_names
from hopscope.model.condition import Comparison, Joined, Not
from hopscope.model.event_fields import BY_NAME as FIELD_OF_EVENT
from hopscope.model.event_fields import Kind as ValueKind
from hopscope.model.event_fields import Known, event_condition
from hopscope.verbs.wire.layout import BY_NAME, HOP_LIMIT_NS, Flag, size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.condition import Condition, Sign

# Field of an event → field of a frame.
_IN_FRAME: Final = {
    **{name: name for name in BY_NAME if name in FIELD_OF_EVENT},
    "skb": "packet",
}
# Numbers below 0 are in the upper half.
_SIGNED: Final = ("len_bytes", "packet", "flow", "time_ns")
_IP_VERSION: Final = "ip_version"


@dataclass(frozen=True, slots=True)
class InRange:
    """A field of a frame is one of these numbers, both ends included."""

    field: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Bits:
    """Of these bits of a field, those of `value` are set and no others."""

    field: str
    mask: int
    value: int


@dataclass(frozen=True, slots=True)
class All:
    """All of these hold."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801 # typing's Any is another one
    """One of these holds."""

    terms: tuple[Term, ...]


Atom: TypeAlias = InRange | Bits
Term: TypeAlias = Atom | All | Any_


def terms_of(text: str) -> Term:
    """Return what frames a condition selects.

    Raises
    ------
    UsageError
        It is no condition, or about something that is not in frames.
    """
    return _term(event_condition(text, Known(points=_numbers())), wanted=True)


def most_of(field: str) -> int:
    """Return the largest number that a field has room for."""
    return (1 << 8 * size_bytes(field)) - 1


def _numbers() -> dict[str, int]:
    return {name: number for number, name in point_names().items()}


def _term(condition: Condition, *, wanted: bool) -> Term:
    """Return where a condition holds; not `wanted`: where it does not."""
    match condition:
        case Comparison(field, sign, value):
            return _compared(field, sign, value, wanted=wanted)
        case Not(inner):
            return _term(inner, wanted=not wanted)
        case Joined(both, left, right):
            terms = _term(left, wanted=wanted), _term(right, wanted=wanted)
            return All(terms) if both == wanted else Any_(terms)


def _compared(name: str, sign: Sign, value: Any, *, wanted: bool) -> Term:  # noqa: ANN401 # as its kind
    field = _IN_FRAME.get(name)
    if field is None:
        raise UsageError(f"Frames do not have the field {name}", f"They have {', '.join(sorted(_IN_FRAME))}")
    holds = _holds(field, sign, value, wanted=wanted)
    needs = BY_NAME[field].needs
    if needs is None:
        return holds
    return All((_flag(needs, needs), holds)) if wanted else Any_((_flag(needs, Flag(0)), holds))


def _flag(flag: Flag, value: Flag) -> Bits:
    return Bits("flags", flag.value, value.value)


def _holds(field: str, sign: Sign, value: Any, *, wanted: bool) -> Term:  # noqa: ANN401 # as its kind
    if field == "point":
        value = _numbers()[value]
    elif FIELD_OF_EVENT.get(field) and FIELD_OF_EVENT[field].kind is ValueKind.ADDRESS:
        inside = _in_network(field, value)
        return inside if (sign == "==") == wanted else _not_all(inside)
    if sign == "&":
        most = most_of(field)
        mask = value & most
        if mask == most:  # libpcap takes no bit of all for a contradiction
            return InRange(field, 1, most) if wanted else InRange(field, 0, 0)
        bits = [1 << at for at in range(mask.bit_length()) if mask >> at & 1]
        return Any_(tuple(Bits(field, bit, bit) for bit in bits)) if wanted else Bits(field, mask, 0)
    if field == "hop_ns" and value >= HOP_LIMIT_NS:
        raise UsageError(f"Frames have hops up to {HOP_LIMIT_NS / 1e9:.2f} s", "Compare with a shorter time")
    return Any_(tuple(InRange(field, *ends) for ends in _ranges(field, sign, value, wanted=wanted)))


def _ranges(field: str, sign: Sign, value: int, *, wanted: bool) -> list[tuple[int, int]]:
    """Return the numbers that compare so, as a frame has them: as few ranges as possible, in their order."""
    size = most_of(field) + 1
    least, most = (-(size >> 1), (size >> 1) - 1) if field in _SIGNED else (0, size - 1)
    below, there, above = (least, min(value - 1, most)), (value, value), (max(value + 1, least), most)
    if not least <= value <= most:
        there = (1, 0)
    chosen = {
        "==": (there,), "!=": (below, above), "<": (below,), "<=": (below, there), ">": (above,), ">=": (there, above),
    }  # fmt: skip
    ends = chosen[sign] if wanted else tuple(each for each in (below, there, above) if each not in chosen[sign])
    halves = (half for first, last in ends for half in ((first, min(last, -1)), (max(first, 0), last)))
    found: list[tuple[int, int]] = []
    for low, high in sorted((low % size, high % size) for low, high in halves if low <= high):
        if found and found[-1][1] + 1 == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def _in_network(field: str, text: str) -> All:
    network = ipaddress.ip_network(text, strict=False)
    version = InRange(_IP_VERSION, network.version, network.version)
    if not network.prefixlen:
        return All((version,))
    return All((version, Bits(field, int(network.netmask), int(network.network_address))))


def _not_all(term: All) -> Term:
    """Return where one of ranges and bits does not hold."""
    found: list[Term] = []
    for each in term.terms:
        match each:
            case InRange(field, least, most):
                found += [InRange(field, 0, least - 1), InRange(field, most + 1, most_of(field))]
            case Bits(field, mask, value):
                found.append(Any_(tuple(_differs(field, mask, value))))
    return Any_(tuple(found))


def _differs(field: str, mask: int, value: int) -> Iterator[Bits]:
    """Yield, for each bit from the first one on, that it is the first one that is another."""
    before = 0
    for at in reversed(range(mask.bit_length())):
        bit = 1 << at
        if mask & bit:
            yield Bits(field, before | bit, value & before | ~value & bit)
            before |= bit
