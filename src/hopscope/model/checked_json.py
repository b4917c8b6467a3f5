# SPDX-License-Identifier: Apache-2.0
"""JSON objects of another program or host, whose members are checked as they are read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Choice = TypeVar("Choice")

# What the kernel's counters can hold; a larger number is no figure of ours, and takes memory and time.
_MOST: Final = 2**64


class Fields:
    """The members of an object. Whatever is missing, or is not what is asked for, raises FormatError.

    Parameters
    ----------
    document
        As ``json.loads`` returns it.
    what
        What it should be, for errors, such as ``a hop``.
    """

    def __init__(self, document: object, what: str) -> None:
        if not isinstance(document, dict):
            raise FormatError(f"{what} is not a JSON object")
        self._members: dict[str, Any] = document
        self._what = what

    def text(self, name: str) -> str:
        """Return a text."""
        return str(self._member(name, str))

    def text_or_none(self, name: str) -> str | None:
        """Return a text, None where it is null."""
        return None if self._is_null(name) else self.text(name)

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        return bool(self._member(name, bool))

    def whole(self, name: str, least: int = 0) -> int:
        """Return a whole number of at most 64 bits that is not below `least`."""
        value = int(self._member(name, int))
        if not least <= value < _MOST:
            raise self._wrong(name)
        return value

    def whole_or_none(self, name: str) -> int | None:
        """Return a whole number, None where it is null."""
        return None if self._is_null(name) else self.whole(name)

    def number(self, name: str) -> float:
        """Return a number that is finite and not negative."""
        value = self._member(name, int, float)
        if not 0 <= value < _MOST or not math.isfinite(value):
            raise self._wrong(name)
        return float(value)

    def number_or_none(self, name: str) -> float | None:
        """Return a number, None where it is null."""
        return None if self._is_null(name) else self.number(name)

    def choice(self, name: str, choices: Iterable[Choice]) -> Choice:
        """Return the one of `choices` that it is."""
        value = self._member(name, str, int)
        for each in choices:
            if each == value:
                return each
        raise self._wrong(name)

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        return [str(each) for each in self._all_are(name, self._member(name, list), str)]

    def wholes(self, name: str) -> list[int]:
        """Return a list of whole numbers that are not negative."""
        numbers = [int(each) for each in self._all_are(name, self._member(name, list), int)]
        if numbers and not 0 <= min(numbers) <= max(numbers) < _MOST:
            raise self._wrong(name)
        return numbers

    def labels(self, name: str) -> dict[str, str]:
        """Return an object whose members are texts."""
        members = self._member(name, dict)
        self._all_are(name, [*members, *members.values()], str)
        return dict(members)

    def has(self, name: str) -> bool:
        """Return whether there is such a member at all."""
        return name in self._members

    def part(self, name: str) -> Fields:
        """Return an object inside of this one."""
        return Fields(self._member(name, dict), f"{name} of {self._what}")

    def part_or_none(self, name: str) -> Fields | None:
        """Return an object inside of this one, None where it is null."""
        return None if self._is_null(name) else self.part(name)

    def parts(self, name: str) -> list[Fields]:
        """Return a list of objects inside of this one."""
        return [Fields(each, f"{name} of {self._what}") for each in self._member(name, list)]

    def _is_null(self, name: str) -> bool:
        return name in self._members and self._members[name] is None

    def _member(self, name: str, *kinds: type) -> Any:  # noqa: ANN401 # one of `kinds`
        value = self._members.get(name)
        # True is an int to Python, not to JSON.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self._wrong(name)
        return value

    def _all_are(self, name: str, values: Sequence[Any], kind: type) -> Sequence[Any]:
        if not all(isinstance(each, kind) and not isinstance(each, bool) for each in values):
            raise self._wrong(name)
        return values

    def _wrong(self, name: str) -> FormatError:
        return FormatError(f"{self._what} has no valid {name}")
