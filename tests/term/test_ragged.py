# SPDX-License-Identifier: Apache-2.0
"""Bytes that arrays put together are those that Python would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.term.ragged import Joined, Ragged, decimals, together

NUMBERS = st.lists(st.integers(-(1 << 62), 1 << 62), max_size=20)


def texts(ragged: Ragged) -> list[bytes]:
    return [ragged.data[at : at + size].tobytes() for at, size in zip(ragged.starts, ragged.lengths, strict=True)]


@given(values=NUMBERS)
@pytest.mark.parametrize("places", [0, 3])
def test_numbers_are_decimals(places: int, values: list[int]) -> None:
    def expected(value: int) -> bytes:
        whole, part = divmod(abs(value), 10**places)
        return f"{'-' * (value < 0)}{whole}{f'.{part:0{places}}' * bool(places)}".encode()

    assert texts(decimals(np.array(values, np.int64), places)) == [expected(value) for value in values]


@given(words=st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=8))
def test_pieces_become_wholes_where_they_are_to_be(words: list[list[bytes]]) -> None:
    pieces, (first, second) = together(Ragged.of([b"before"]), Ragged.of([piece for each in words for piece in each]))
    assert (first, second) == (0, 1)
    counts = np.array([len(each) for each in words], np.int64)
    joined = Joined(pieces.chosen(np.arange(1, len(pieces.starts))), counts)
    wholes = [b"".join(each) for each in words]
    assert joined.lengths.tolist() == [len(each) for each in wholes]
    there, at = np.zeros(8 * 32, np.uint8), np.arange(len(words))[::-1] * 32
    joined.put(there, at)
    assert [there[place : place + len(each)].tobytes() for place, each in zip(at, wholes, strict=True)] == wholes
