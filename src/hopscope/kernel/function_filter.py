# SPDX-License-Identifier: Apache-2.0
"""The filter of a function's values: comparisons of numbers, joined by ``&&`` and ``||``, as a list of tests.

Each test says which one comes next if it holds and if not, always one further on, or that it is decided.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopFetchIs, HopFetchLimits, HopFetchNext
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN: Final = re.compile(r"\s*(?:(&&|\|\||[=!<>]=|[<>&()])|([A-Za-z_][\w.]*)|(-?(?:0[xX][0-9a-fA-F]+|\d+))(?!\w))")
_SIGNS: Final = {
    "==": HopFetchIs.HOP_FETCH_IS_EQUAL,
    "!=": HopFetchIs.HOP_FETCH_IS_OTHER,
    "<": HopFetchIs.HOP_FETCH_IS_LESS,
    "<=": HopFetchIs.HOP_FETCH_IS_AT_MOST,
    ">": HopFetchIs.HOP_FETCH_IS_MORE,
    ">=": HopFetchIs.HOP_FETCH_IS_AT_LEAST,
    "&": HopFetchIs.HOP_FETCH_HAS_BITS,
}
_MOST_TOKENS: Final = 256
_LANGUAGE: Final = "Compare values with numbers (== != < <= > >= &), joined by && and ||: if len > 1000 && flags & 0x40"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A value and a number."""

    path: str
    kind: HopFetchIs
    number: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Two conditions, both of which hold, or one of them."""

    both: bool
    left: Condition
    right: Condition


Condition = Comparison | Joined


@dataclass(frozen=True, slots=True)
class Step:
    """A comparison in its place."""

    comparison: Comparison
    if_true: int
    if_false: int


def parse_filter(text: str) -> Condition:
    """Return what the text says.

    Raises
    ------
    UsageError
        It is no filter, or has too many comparisons.
    """
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) == _MOST_TOKENS:
            raise _no_filter(text)
        tokens.append(found[0].strip())
        at = found.end()
    reader = _Reader(text, tokens)
    condition = reader.either()
    if reader.left:
        raise _no_filter(text)
    most = int(HopFetchLimits.HOP_FETCH_TESTS)
    if (count := sum(1 for _ in comparisons(condition))) > most:
        raise UsageError(
            f"A filter takes at most {most} comparisons, '{text}' has {count}", "Filter with `hopscope sql`"
        )
    return condition


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons from left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        yield from comparisons(condition.left)
        yield from comparisons(condition.right)


def steps_of(condition: Condition) -> list[Step]:
    """Return it as steps, the first of which begins."""
    steps: list[Step] = []
    _add(steps, condition, HopFetchNext.HOP_FETCH_PASSES, HopFetchNext.HOP_FETCH_FAILS)
    return steps


def _add(steps: list[Step], condition: Condition, if_true: int, if_false: int) -> None:
    if isinstance(condition, Comparison):
        steps.append(Step(condition, if_true, if_false))
        return
    right = len(steps) + sum(1 for _ in comparisons(condition.left))
    _add(steps, condition.left, right if condition.both else if_true, if_false if condition.both else right)
    _add(steps, condition.right, if_true, if_false)


class _Reader:
    """Takes the words of a filter one by one."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self.left = tokens

    def either(self) -> Condition:
        condition = self._both()
        while self._has("||"):
            condition = Joined(both=False, left=condition, right=self._both())
        return condition

    def _both(self) -> Condition:
        condition = self._one()
        while self._has("&&"):
            condition = Joined(both=True, left=condition, right=self._one())
        return condition

    def _one(self) -> Condition:
        if self._has("("):
            condition = self.either()
            if not self._has(")"):
                raise _no_filter(self._text)
            return condition
        path, sign, number, *rest = (*self.left, "", "", "")[: max(3, len(self.left))]
        if not re.match(r"[A-Za-z_]", path) or sign not in _SIGNS or not re.match(r"-?\d", number):
            raise _no_filter(self._text)
        self.left = rest
        return Comparison(path, _SIGNS[sign], int(number, 16 if "x" in number.lower() else 10))

    def _has(self, token: str) -> bool:
        if not self.left or self.left[0] != token:
            return False
        self.left = self.left[1:]
        return True


def _no_filter(text: str) -> UsageError:
    return UsageError(f"'{text}' is no filter of a function's values", _LANGUAGE)
