# SPDX-License-Identifier: Apache-2.0
"""What is said of a counter, and the form in which the tables ``counter_names_*.py`` say it.

An entry of a table is a line with names, sign and source between bars, and indented lines: what is counted, and after
``=`` what it means when it moves::

    TcpExtTCPBacklogDrop | loss | net/ipv4/tcp_ipv4.c tcp_add_backlog
      Segments dropped because ...
      = The application holds the socket's lock for long ...

A name may be a pattern: ``#`` stands for digits, ``*`` for anything. Many names may take several lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

Sign: TypeAlias = Literal["loss", "bad", "either", "plain"]

SIGNS: Final = {
    "loss": "something was lost or refused",
    "bad": "a bad sign, though nothing need be lost",
    "either": "good or bad, depending on what else moves",
    "plain": "work that was done",
}

# In the first line of an entry.
_BARS: Final = 2


@dataclass(frozen=True)
class Explanation:
    """One counter, gauge, or family of them.

    Attributes
    ----------
    names
        As :attr:`hopscope.model.counters.readings.Key.name` has them; patterns have ``#`` or ``*``.
    sign
        What it means when it moves, as a word of :data:`SIGNS`.
    counts
        What it counts, and when exactly.
    means
        What to think when it moves.
    source
        Kernel file and function, RFC, or page of the kernel's documentation.
    """

    names: tuple[str, ...]
    sign: Sign
    counts: str
    means: str
    source: str

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile("|".join(map(_expression, self.names)), re.IGNORECASE)

    def covers(self, name: str) -> bool:
        """Tell whether it is about this name; case does not matter."""
        return self._expression.fullmatch(name) is not None

    @property
    def is_family(self) -> bool:
        """Whether any of its names is a pattern."""
        return any(is_pattern(name) for name in self.names)


def is_pattern(name: str) -> bool:
    """Tell whether a name of an entry stands for several."""
    return "#" in name or "*" in name


def parse(text: str) -> tuple[Explanation, ...]:
    """Return the entries of a table.

    Raises
    ------
    ValueError
        It is not in the form that this module describes: a mistake of ours.
    """
    return tuple(_entry(lines) for lines in _blocks(text))


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if line[0] != " " and "".join(block).count("|") == _BARS:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _entry(lines: list[str]) -> Explanation:
    head = " ".join(line for line in lines if line[0] != " ")
    names, sign, source = (part.strip() for part in head.split("|"))
    counts, _, means = " ".join(line.strip() for line in lines if line[0] == " ").partition(" = ")
    if sign not in get_args(Sign) or not names or not source or not counts or not means:
        raise ValueError(head)
    return Explanation(tuple(names.split()), sign, counts, means, source)  # type: ignore[arg-type] # just looked


def _expression(name: str) -> str:
    return re.escape(name).replace(r"\#", r"\d+").replace(r"\*", ".*")
