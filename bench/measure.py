# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks share: turns, medians with their spread, and tables."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar

from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_GAP: Final = "  "
_COARSE: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and its quartiles.

    Attributes
    ----------
    median, low, high
        Half of the values, a quarter, three quarters are at most so large.
    count
        Values.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum values up; values that are not finite are left out, and all figures are nan if none remains."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < 2:
            only = finite[0] if finite else math.nan
            return cls(only, only, only, len(finite))
        low, median, high = statistics.quantiles(finite, n=4, method="inclusive")
        return cls(median, low, high, len(finite))

    def shown(self, form: str = ".1f") -> str:
        """Return ``median (low..high)``; digits after the point only where they say something."""
        if max(abs(self.low), abs(self.high)) >= _COARSE:
            form = form.partition(".")[0] + ".0f"
        return f"{self.median:{form}} ({self.low:{form}}..{self.high:{form}})"


def rates(spread: Spread) -> str:
    """Return rates as ``1.23M (1.10M..1.40M)``."""
    return f"{fmt.rate(spread.median)} ({fmt.rate(spread.low)}..{fmt.rate(spread.high)})"


def turns(variants: Sequence[T], rounds: int) -> Iterator[tuple[T, ...]]:
    """Yield the order of each round: forth and back (ABBA), so that what drifts evenly falls on all alike.

    Each pair of rounds begins one variant later, so that none always follows the same one, or comes last.
    """
    for number in range(rounds):
        first = number // 2 % len(variants)
        order = (*variants[first:], *variants[:first])
        yield order if number % 2 == 0 else order[::-1]


def change_percent(before: float, after: float) -> float:
    """Return by how much `after` is above `before`; nan if that is 0."""
    return (after / before - 1) * 100 if before else math.nan


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 1) -> str:
    """Lay out rows under a head: the first `names` columns to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        _GAP.join(
            cell.ljust(width) if index < names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
