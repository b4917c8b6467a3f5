# SPDX-License-Identifier: Apache-2.0
"""What the kernel was busy with, by a stack and the table in :mod:`hopscope.model.categories`."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.categories import HOOKS, LEAVES_PROGRAM, OTHER, PROGRAM_ROWS, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hopscope.model.categories import Row

OWN_PROGRAMS: Final = "hopscope"
_PROGRAM_PREFIX: Final = "bpf_prog_"
_TAG_DIGITS: Final = 16
# Whose categories are remembered: the same ones come again in each interval.
_STACKS: Final = 1 << 14


class Category(NamedTuple):
    """A category and a finer name in it, which may be empty."""

    category: str
    detail: str


class Rows:
    """Rows of a table, to be found by the name of a function.

    Parameters
    ----------
    rows
        No pattern may be in two of them.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._exact: dict[str, Row] = {}
        self._beginnings: dict[str, Row] = {}
        for row in rows:
            for pattern in row.patterns.split():
                known = self._beginnings if pattern.endswith("*") else self._exact
                name = pattern.removesuffix("*")
                if name in known:
                    raise ValueError(f"{pattern} is in two rows")
                known[name] = row
        self.of = cache(self._find)  # functions are few, and stacks are many

    def _find(self, function: str) -> Row | None:
        """Return the row that knows a function: by its name, else by the longest beginning of it."""
        if function in self._exact:
            return self._exact[function]
        lengths = range(len(function), 0, -1)
        return next((self._beginnings[function[:n]] for n in lengths if function[:n] in self._beginnings), None)


_ROWS: Final = Rows(ROWS)
_PROGRAM_ROWS: Final = Rows(PROGRAM_ROWS)
_HOOKS: Final = Rows(HOOKS)


@lru_cache(_STACKS)
def classify(frames: tuple[str, ...], own: tuple[str, ...] = ()) -> Category:
    """Return what a stack was busy with.

    Parameters
    ----------
    frames
        Names of functions, the outermost first.
    own
        Beginnings of the names of hopscope's own BPF programs.
    """
    found: Category | None = None
    for place in range(len(frames) - 1, -1, -1):
        function = frames[place]
        if program_name(function) is not None:
            # What a program calls is the program's, whatever row knows it.
            return _program(frames, place, own)
        if found is None and (row := _ROWS.of(function)):
            found = Category(row.category, _detail(row, frames, place))
        if found and function in LEAVES_PROGRAM:
            return found
    return found or Category(OTHER, "")


def program_name(function: str) -> str | None:
    """Return the name of a BPF program (its tag where it has none) by that of its function; None for other functions.

    Kallsyms has ``bpf_prog_``, the tag as 16 hexadecimal digits, and ``_`` with the name.
    """
    if not function.startswith(_PROGRAM_PREFIX):
        return None
    tag, _, name = function.removeprefix(_PROGRAM_PREFIX).partition("_")
    is_tag = len(tag) == _TAG_DIGITS and set(tag) <= set("0123456789abcdef")
    return (name or tag) if is_tag else None


def _program(frames: Sequence[str], place: int, own: tuple[str, ...]) -> Category:
    """Return the category of the program at `place`: that of who runs it, with the name of the outermost function."""
    name = program_name(frames[place]) or ""
    category = "bpf"
    for function in reversed(frames[:place]):
        outer = program_name(function)
        if outer is not None:
            name = outer
        elif row := _PROGRAM_ROWS.of(function):
            category = row.category
            break
        elif _ROWS.of(function):
            break
    return Category("bpf", OWN_PROGRAMS) if name.startswith(own) else Category(category, name)


def _detail(row: Row, frames: Sequence[str], place: int) -> str:
    if "{callee}" in row.detail:
        callee = frames[place + 1] if place + 1 < len(frames) else ""
        # Drivers' functions do not begin so, those of the compiler and of the kernel's lists do.
        return row.detail.format(callee="" if callee.startswith("_") else callee)
    if "{hook}" in row.detail:
        hooks = (hook.detail for function in reversed(frames[:place]) if (hook := _HOOKS.of(function)))
        return row.detail.format(hook=next(hooks, "")).rstrip()
    return row.detail
