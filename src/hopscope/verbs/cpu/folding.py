# SPDX-License-Identifier: Apache-2.0
"""Samples of kernel stacks in bulk: from addresses to names, and each different stack looked at once.

What comes again is known by numbers alone: an address by its place in a table, a stack by a hash of its functions'
numbers. Python works only on what is new, and once for all equal stacks of a batch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# What a stack is counted as: its part, and its functions, the outermost first.
Seen = tuple[str, tuple[str, ...]]

_SLOT_BITS: Final = 15
_SLOT_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: spreads what lies close together
_MOST_FRAMES: Final = 128
# Odd and random: a sum of products by them is the same for two sequences of numbers once in 2^63 (M. Dietzfelbinger,
# "Universal hashing and k-wise independent random variables via integer arithmetic without primes", STACS 1996).
_FACTORS: Final = np.random.default_rng(1).integers(1 << 64, size=_MOST_FRAMES, dtype=np.uint64) | np.uint64(1)
_PART_FACTOR, _GROUP_FACTOR = (
    np.random.default_rng(2).integers(1 << 64, size=2, dtype=np.uint64) | np.uint64(1)
).tolist()


class Names(Protocol):
    """Functions by address."""

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """Return the name of the function at each address."""

    def lasting(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell which addresses will always have the name that they have."""


class FunctionNumbers:
    """Functions by address, as numbers: equal names have equal numbers, and 0 is no function.

    Addresses whose names last are kept in a table, each in the one slot that it can be in: another one that belongs
    there takes it over. So it neither grows nor has to be searched.

    Parameters
    ----------
    symbols
        Tells the names.
    """

    def __init__(self, symbols: Names) -> None:
        self._symbols = symbols
        self._numbers: dict[str, int] = {}
        self._names = [""]
        self._addresses = np.zeros(1 << _SLOT_BITS, np.uint64)
        self._kept = np.zeros(1 << _SLOT_BITS, np.uint32)

    def of(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the number of the function at each address, 0 for the address 0."""
        slots = _slots(addresses)
        numbers = self._kept[slots]
        missing = self._addresses[slots] != addresses
        if missing.any():
            numbers[missing] = self._looked_up(addresses[missing])
        return numbers

    def name(self, number: int) -> str:
        """Return the name that has a number."""
        return self._names[number]

    def _looked_up(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint32]:
        asked, places = np.unique(addresses, return_inverse=True)
        numbers = np.array([self._number(name) for name in self._symbols.names(asked)], np.uint32)
        slots = _slots(asked)
        kept = self._symbols.lasting(asked) & (slots != 0)  # that slot is the address 0's
        self._addresses[slots[kept]] = asked[kept]
        self._kept[slots[kept]] = numbers[kept]
        return numbers[places]

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number


def _slots(addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (addresses * _SLOT_FACTOR) >> np.uint64(64 - _SLOT_BITS)


class Folding:
    """Counts samples by what their stacks are seen as.

    Parameters
    ----------
    symbols
        Tells the names of functions.
    seen_as
        Takes the number of a part and the functions, the outermost first, once for each different stack, and tells
        what it is counted as; None: not at all.
    """

    def __init__(self, symbols: Names, seen_as: Callable[[int, tuple[str, ...]], Seen | None]) -> None:
        self._functions = FunctionNumbers(symbols)
        self._seen_as = seen_as
        self._known: dict[int, Seen | None] = {}

    def fold(
        self, addresses: NDArray[np.uint64], parts: NDArray[np.integer[Any]], groups: NDArray[np.integer[Any]]
    ) -> Counter[tuple[Seen, int]]:
        """Return how often each stack was seen in each group.

        Parameters
        ----------
        addresses : shape (n, at most 128)
            A row a sample, the innermost frame first, zeros behind the outermost. It is overwritten.
        parts, groups : shape (n,)
            Numbers, of each sample.
        """
        # A frame that called another holds the address behind the call, which may be the first of the next function.
        addresses[:, 1:] -= addresses[:, 1:] != 0
        numbers = self._functions.of(addresses)
        keys = numbers @ _FACTORS[: numbers.shape[1]] + parts.astype(np.uint64) * np.uint64(_PART_FACTOR)
        _, rows, counts = np.unique(
            keys + groups.astype(np.uint64) * np.uint64(_GROUP_FACTOR), return_index=True, return_counts=True
        )
        counted: Counter[tuple[Seen, int]] = Counter()
        columns = (array.tolist() for array in (rows, keys[rows], groups[rows], counts))
        for row, key, group, count in zip(*columns, strict=True):
            if key not in self._known:
                self._known[key] = self._seen_as(int(parts[row]), self._frames(numbers[row]))
            seen = self._known[key]
            if seen:
                counted[seen, group] += count
        return counted

    def _frames(self, numbers: NDArray[np.uint32]) -> tuple[str, ...]:
        return tuple(map(self._functions.name, numbers[numbers != 0][::-1].tolist()))
