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
from hopscope.live.wire.layout import BY_NAME, HOP_LIMIT_NS, Flag, Place, entries_of, numbers_of_own, place
from hopscope.model.condition import Comparison, Joined, Not
from hopscope.model.event_fields import BY_NAME as FIELD_OF_EVENT
from hopscope.model.event_fields import Kind as ValueKind
from hopscope.model.event_fields import event_condition
from hopscope.trace.where import known_of, tables_of_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.model.condition import Condition, Sign
    from hopscope.store.schema import Table

# Field of an event → field of a frame.
_IN_FRAME: Final = {
    **{name: name for name in BY_NAME if name in FIELD_OF_EVENT},
    "skb": "packet",
}
# Numbers below 0 are in the upper half.
_SIGNED: Final = ("len_bytes", "packet", "flow", "time_ns")


@dataclass(frozen=True, slots=True)
class InRange:
    """What is at a place of a frame is one of these numbers, both ends included."""

    place: Place
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Bits:
    """Of these bits at a place, those of `value` are set and no others."""

    place: Place
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


def terms_of(text: str, tables: Sequence[Table] = ()) -> Term:
    """Return what frames a condition selects.

    Parameters
    ----------
    text
        The condition.
    tables
        All tables of tracepoints and functions of which events are sent, too.

    Raises
    ------
    UsageError
        It is no condition, or about something that is not in frames, or at no fixed place in them.
    """
    numbers = {name: number for number, name in point_names().items()}
    tables = tables_of_events(tables)
    frames = _Frames(numbers | numbers_of_own(table.name for table in tables), tables)
    return frames.term(event_condition(text, known_of(numbers, tables)), wanted=True)


def most_of(place: Place) -> int:
    """Return the largest number that a place has room for."""
    return (1 << 8 * place.size_bytes) - 1


class _Frames:
    """What conditions mean in frames.

    Parameters
    ----------
    numbers
        Of all events, by their names.
    tables
        Of those that have fields of their own.
    """

    def __init__(self, numbers: Mapping[str, int], tables: Sequence[Table]) -> None:
        self._numbers = numbers
        self._entries = {table.name: {entry.name: entry.place for entry in entries_of(table)} for table in tables}

    def term(self, condition: Condition, *, wanted: bool) -> Term:
        """Return where a condition holds; not `wanted`: where it does not."""
        match condition:
            case Comparison(field, sign, value):
                return self._compared(field, sign, value, wanted=wanted)
            case Not(inner):
                return self.term(inner, wanted=not wanted)
            case Joined(both, left, right):
                terms = self.term(left, wanted=wanted), self.term(right, wanted=wanted)
                return All(terms) if both == wanted else Any_(terms)

    def _compared(self, name: str, sign: Sign, value: Any, *, wanted: bool) -> Term:  # noqa: ANN401 # as its kind
        if name in _IN_FRAME:
            field = _IN_FRAME[name]
            number = self._numbers[value] if field == "point" else value
            holds = _holds(field, sign, number, wanted=wanted)
            needs = BY_NAME[field].needs
            if needs is None:
                return holds
            return All((_flag(needs, needs), holds)) if wanted else Any_((_flag(needs, Flag(0)), holds))
        having = {table: entries[name] for table, entries in self._entries.items() if name in entries}
        if not having or name in FIELD_OF_EVENT:
            raise UsageError(f"Frames do not have the field {name}", f"They have {', '.join(sorted(_IN_FRAME))}")
        found = [self._of_own(table, place, name, (sign, value), wanted=wanted) for table, place in having.items()]
        return Any_(tuple(found)) if wanted else All(tuple(found))

    def _of_own(  # one a part
        self,
        table: str,
        place: Place | None,
        name: str,
        compared: tuple[Sign, Any],
        *,
        wanted: bool,
    ) -> Term:
        """Return where a field of one kind of event compares so; of others, it does not."""
        if place is None:
            raise UsageError(
                f"{name} of {table} is at no fixed place of its frames, as texts are",
                "Select by it where they are sent: hopscope wire --where",
            )
        sign, value = compared
        is_it = _holds("point", "==", self._numbers[table], wanted=wanted)
        holds = _numeric(place, sign, value, wanted=wanted, signed=True)
        return All((is_it, holds)) if wanted else Any_((is_it, holds))


def _flag(flag: Flag, value: Flag) -> Bits:
    return Bits(place("flags"), flag.value, value.value)


def _holds(field: str, sign: Sign, value: Any, *, wanted: bool) -> Term:  # noqa: ANN401 # as its kind
    if FIELD_OF_EVENT.get(field) and FIELD_OF_EVENT[field].kind is ValueKind.ADDRESS:
        inside = _in_network(field, value)
        return inside if (sign == "==") == wanted else _not_all(inside)
    if field == "hop_ns" and value >= HOP_LIMIT_NS:
        raise UsageError(f"Frames have hops up to {HOP_LIMIT_NS / 1e9:.2f} s", "Compare with a shorter time")
    return _numeric(place(field), sign, value, wanted=wanted, signed=field in _SIGNED)


def _numeric(at: Place, sign: Sign, value: int, *, wanted: bool, signed: bool) -> Term:
    if sign == "&":
        most = most_of(at)
        mask = value & most
        if mask == most:  # libpcap takes no bit of all for a contradiction
            return InRange(at, 1, most) if wanted else InRange(at, 0, 0)
        bits = [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]
        return Any_(tuple(Bits(at, bit, bit) for bit in bits)) if wanted else Bits(at, mask, 0)
    return Any_(tuple(InRange(at, *ends) for ends in _ranges(at, sign, value, wanted=wanted, signed=signed)))


def _ranges(at: Place, sign: Sign, value: int, *, wanted: bool, signed: bool) -> list[tuple[int, int]]:
    """Return the numbers that compare so, as a frame has them: as few ranges as possible, in their order."""
    size = most_of(at) + 1
    least, most = (-(size >> 1), (size >> 1) - 1) if signed else (0, size - 1)
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
    version = InRange(place("ip_version"), network.version, network.version)
    if not network.prefixlen:
        return All((version,))
    return All((version, Bits(place(field), int(network.netmask), int(network.network_address))))


def _not_all(term: All) -> Term:
    """Return where one of ranges and bits does not hold."""
    found: list[Term] = []
    for each in term.terms:
        match each:
            case InRange(at, least, most):
                found += [InRange(at, 0, least - 1), InRange(at, most + 1, most_of(at))]
            case Bits(at, mask, value):
                found.append(Any_(tuple(_differs(at, mask, value))))
    return Any_(tuple(found))


def _differs(at: Place, mask: int, value: int) -> Iterator[Bits]:
    """Yield, for each bit from the first one on, that it is the first one that is another."""
    before = 0
    for power in reversed(range(mask.bit_length())):
        bit = 1 << power
        if mask & bit:
            yield Bits(at, before | bit, value & before | ~value & bit)
            before |= bit
