# SPDX-License-Identifier: Apache-2.0
"""Conditions, the language by which events are selected: ``rx.tcp_queue > 1ms and port == 443``.

::

    condition   = both, { ("or" | "||"), both }
    both        = one, { ("and" | "&&"), one }
    one         = ("not" | "!"), one | "(", condition, ")" | comparison
    comparison  = field, sign, value | field, ["not"], "in", "(", value, { ",", value }, ")"
    sign        = "==" | "=" | "!=" | "<" | "<=" | ">" | ">=" | "&"

A value is a whole number, also hexadecimal; a time with a unit (``1.5ms``); or text, in quotes where it has blanks or
signs. ``&`` holds if the value has any of these bits. A comparison with what is not known does not hold, nor does
``!=``; its negation by ``not`` does.

What reads the parsed condition (NumPy, SQL, the kernel's programs) selects the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Sign: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "&"]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<sign>&&|\|\||[=!<>]=|[=<>&()!,])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'"""
    r"""|(?P<word>[^\s=!<>&|(),"']+))"""
)
_FIELD: Final = re.compile(r"[A-Za-z_][\w.:]*")
_NUMBER: Final = re.compile(r"-?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")
_TIME: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{0,18})?)(ns|us|µs|ms|s)")
_UNITS_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_WORDS: Final = {"and": "&&", "or": "||", "not": "!"}
_SIGNS: Final = {"=": "==", **{sign: sign for sign in ("==", "!=", "<", "<=", ">", ">=", "&")}}
_MOST_TOKENS: Final = 256
_MOST_NESTED: Final = 32


@dataclass(frozen=True, slots=True)
class Time:
    """A time with a unit, as it was written."""

    text: str
    ns: int


Value: TypeAlias = int | Time | str


def written(value: Value) -> str:
    """Return a value as it was written."""
    return value.text if isinstance(value, Time) else str(value)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field and what it is compared with."""

    field: str
    sign: Sign
    value: Value


@dataclass(frozen=True, slots=True)
class Joined:
    """Two conditions, both of which hold, or one of them."""

    both: bool
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    condition: Condition


Condition: TypeAlias = Comparison | Joined | Not


@dataclass(frozen=True, slots=True)
class Step:
    """A comparison in its place among the others, each of which is tried once at most.

    Attributes
    ----------
    comparison
        What is tried.
    if_true, if_false
        The number of the next step, which is always a later one; :data:`PASSES` or :data:`FAILS`.
    """

    comparison: Comparison
    if_true: int
    if_false: int


PASSES: Final = -1
FAILS: Final = -2


def parse(text: str) -> Condition:
    """Return what the text says.

    Raises
    ------
    UsageError
        It is no condition; the sentence says where.
    """
    reader = _Reader(text)
    condition = reader.either(0)
    if reader.has_more:
        raise reader.error("and, or, or the end")
    return condition


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons from left to right."""
    match condition:
        case Comparison():
            yield condition
        case Not(inner):
            yield from comparisons(inner)
        case Joined(_, left, right):
            yield from comparisons(left)
            yield from comparisons(right)


def replaced(condition: Condition, by: Callable[[Comparison], Condition]) -> Condition:
    """Return the condition with other conditions in place of its comparisons."""
    match condition:
        case Comparison():
            return by(condition)
        case Not(inner):
            return Not(replaced(inner, by))
        case Joined(both, left, right):
            return Joined(both, replaced(left, by), replaced(right, by))


def joined(parts: list[Condition], *, both: bool) -> Condition:
    """Return the condition that all of these hold, or one of them."""
    first, *others = parts
    for other in others:
        first = Joined(both, first, other)
    return first


def steps(condition: Condition) -> list[Step]:
    """Return it as steps, the first of which begins."""
    found: list[Step] = []
    _add_steps(found, condition, PASSES, FAILS)
    return found


def _add_steps(found: list[Step], condition: Condition, if_true: int, if_false: int) -> None:
    match condition:
        case Comparison():
            found.append(Step(condition, if_true, if_false))
        case Not(inner):
            _add_steps(found, inner, if_false, if_true)
        case Joined(both, left, right):
            following = len(found) + sum(1 for _ in comparisons(left))
            _add_steps(found, left, following if both else if_true, if_false if both else following)
            _add_steps(found, right, if_true, if_false)


class _Reader:
    """Takes the words of a condition one by one."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._tokens: list[re.Match[str]] = []
        self._next = 0
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None or len(self._tokens) == _MOST_TOKENS:
                raise _no_condition(self._text, f"at most {_MOST_TOKENS} words" if found else "a closing quote", at)
            self._tokens.append(found)
            at = found.end()

    @property
    def has_more(self) -> bool:
        return self._next < len(self._tokens)

    def error(self, expected: str) -> UsageError:
        at = self._tokens[self._next].start() if self.has_more else len(self._text)
        return _no_condition(self._text, expected, at)

    def either(self, depth: int) -> Condition:
        condition = self._both(depth)
        while self._takes("||"):
            condition = Joined(both=False, left=condition, right=self._both(depth))
        return condition

    def _both(self, depth: int) -> Condition:
        condition = self._one(depth)
        while self._takes("&&"):
            condition = Joined(both=True, left=condition, right=self._one(depth))
        return condition

    def _one(self, depth: int) -> Condition:
        if depth > _MOST_NESTED:
            raise self.error(f"at most {_MOST_NESTED} parentheses in one another")
        if self._takes("!"):
            return Not(self._one(depth + 1))
        if self._takes("("):
            condition = self.either(depth + 1)
            self._require(")")
            return condition
        return self._comparison()

    def _comparison(self) -> Condition:
        field = self._word()
        if field is None or not _FIELD.fullmatch(field):
            raise self.error("the name of a field")
        self._next += 1
        outside = self._takes("!")
        if outside or self._word() == "in":
            if self._word() != "in":
                raise self.error("in")
            self._next += 1
            among = joined([Comparison(field, "==", value) for value in self._values()], both=False)
            return Not(among) if outside else among
        sign = _SIGNS.get(self._sign())
        if sign is None:
            raise self.error("== != < <= > >= & or in")
        self._next += 1
        return Comparison(field, cast("Sign", sign), self._value())

    def _values(self) -> Iterator[Value]:
        self._require("(")
        yield self._value()
        while self._takes(","):
            yield self._value()
        self._require(")")

    def _value(self) -> Value:
        if not self.has_more or self._sign():
            raise self.error("a value")
        token = self._tokens[self._next]
        word = self._word()
        self._next += 1
        if word is None:
            return cast("str", token["double"] if token["double"] is not None else token["single"])
        if _NUMBER.fullmatch(word):
            return int(word, 16 if "x" in word.lower() else 10)
        if time := _TIME.fullmatch(word):
            return Time(word, round(float(time[1]) * _UNITS_NS[time[2]]))
        return word

    def _word(self) -> str | None:
        return self._tokens[self._next]["word"] if self.has_more else None

    def _sign(self) -> str:
        """Return the next sign, or the word that means one."""
        if not self.has_more:
            return ""
        token = self._tokens[self._next]
        return token["sign"] or _WORDS.get(token["word"] or "", "")

    def _takes(self, sign: str) -> bool:
        if self._sign() != sign:
            return False
        self._next += 1
        return True

    def _require(self, sign: str) -> None:
        if not self._takes(sign):
            raise self.error(sign)


def _no_condition(text: str, expected: str, at: int) -> UsageError:
    there = f"at '{text[at : at + 20].strip()}'" if at < len(text) else "at its end"
    return UsageError(
        f"'{text}' is not a condition: expected {expected} {there}",
        "Write, for example, 'rx.tcp_queue > 1ms and port == 443' (docs/conditions.md)",
    )
