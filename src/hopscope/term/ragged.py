# SPDX-License-Identifier: Apache-2.0
"""Bytes of different lengths as arrays: put together, and made of numbers, without a step in Python for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Ragged(NamedTuple):
    """Pieces of bytes.

    Attributes
    ----------
    data : ndarray of uint8, shape (m,)
        All of them.
    starts, lengths : ndarray of int64, shape (n,)
        Where in it each piece is.
    """

    data: Bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, pieces: Iterable[bytes]) -> Self:
        """Return these pieces."""
        listed = list(pieces)
        lengths = np.array([len(piece) for piece in listed], np.int64)
        return cls(np.frombuffer(b"".join(listed), np.uint8), np.cumsum(lengths) - lengths, lengths)

    def each(self) -> Iterator[bytes]:
        """Yield the bytes of each piece."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start : start + length].tobytes()

    def put(self, there: Bytes, at: NDArray[np.int64]) -> None:
        """Copy each piece to where it is to begin."""
        ends = np.cumsum(self.lengths)
        within = np.arange(ends[-1] if len(ends) else 0)
        begins = ends - self.lengths
        there[np.repeat(at - begins, self.lengths) + within] = self.data[
            np.repeat(self.starts - begins, self.lengths) + within
        ]

    def chosen(self, which: NDArray[np.int64]) -> Ragged:
        """Return the pieces at these places."""
        return Ragged(self.data, self.starts[which], self.lengths[which])


class Joined(NamedTuple):
    """Bytes each of which is several pieces, one behind the other.

    Attributes
    ----------
    pieces
        Of all of them, in their order.
    counts : ndarray of int64, shape (n,)
        How many each has.
    """

    pieces: Ragged
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, whole: Iterable[bytes]) -> Self:
        """Return bytes that are one piece each."""
        pieces = Ragged.of(whole)
        return cls(pieces, np.ones(len(pieces.starts), np.int64))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each is."""
        ends = np.concatenate([[0], np.cumsum(self.pieces.lengths)])[np.cumsum(self.counts)]
        return np.diff(ends, prepend=0)

    def put(self, there: Bytes, at: NDArray[np.int64]) -> None:
        """Copy each to where it is to begin."""
        lengths = self.lengths
        before = np.cumsum(self.pieces.lengths) - self.pieces.lengths
        self.pieces.put(there, np.repeat(at - (np.cumsum(lengths) - lengths), self.counts) + before)


def together(*parts: Ragged) -> tuple[Ragged, list[int]]:
    """Return pieces with one array of bytes, and where among them those of each part begin."""
    offsets = np.cumsum([0, *(len(part.data) for part in parts)])
    places = np.cumsum([0, *(len(part.starts) for part in parts)])
    return Ragged(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.starts + offset for part, offset in zip(parts, offsets[:-1].tolist(), strict=True)]),
        np.concatenate([part.lengths for part in parts]),
    ), places[:-1].tolist()


def decimals(values: NDArray[np.int64], places: int = 0) -> Ragged:
    """Return numbers as decimals, with so many digits behind the point: thousands with three of them."""
    size = abs(values).astype(np.uint64)
    digits = len(str(int(size.max(initial=0))))
    width = max(digits, places + 1) + bool(places) + 1
    made = np.empty((len(values), width), np.uint8)
    count = np.full(len(values), places + 1 + bool(places), np.int64)
    at = width - 1
    for place in range(max(digits, places + 1)):
        if place == places and places:
            made[:, at] = ord(".")
            at -= 1
        if place > places:
            count += size != 0
        size, digit = np.divmod(size, np.uint64(10))
        made[:, at] = digit.astype(np.uint8) + ord("0")
        at -= 1
    negative = values < 0
    made[np.flatnonzero(negative), width - 1 - count[negative]] = ord("-")
    count += negative
    return Ragged(made.reshape(-1), np.arange(1, len(values) + 1) * width - count, count)
