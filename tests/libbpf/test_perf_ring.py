# SPDX-License-Identifier: Apache-2.0
"""Records of perf events are found among each other, whatever is in them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.libbpf.perf_ring import LOST, SAMPLE, record_starts, taken

IDS = range(7000, 7004)
THROTTLE = 5


def record(kind: int, misc: int, identifier: int, body: list[int]) -> bytes:
    return struct.pack(f"=IHHQ{len(body)}Q", kind, misc, 16 + 8 * len(body), identifier, *body)


def looks_like_a_record(size: int) -> int:
    return SAMPLE | 1 << 32 | size << 48


# A body may have anything in it, also what looks like a record of ours.
words = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([SAMPLE, LOST, *IDS]),
    st.integers(0, 6).map(lambda count: looks_like_a_record(8 * count)),
)
records = st.lists(
    st.builds(
        record,
        st.sampled_from([SAMPLE, SAMPLE, SAMPLE, LOST, THROTTLE]),
        st.sampled_from([1, 2]),
        st.sampled_from(IDS),
        st.lists(words, max_size=8),
    ),
    min_size=1,
    max_size=40,
)


def as_words(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint64)


@given(records)
def test_every_record_is_found(found: list[bytes]) -> None:
    expected = np.cumsum([0, *(len(each) // 8 for each in found)])[:-1]
    assert record_starts(as_words(b"".join(found)), IDS).tolist() == expected.tolist()


@given(st.integers(1, 50), st.lists(words, max_size=8))
def test_records_of_one_size_are_found(count: int, body: list[int]) -> None:
    one = record(SAMPLE, 1, IDS[0], body)
    assert record_starts(as_words(one * count), IDS).tolist() == list(range(0, count * len(one) // 8, len(one) // 8))


def test_an_empty_ring_has_no_record() -> None:
    assert record_starts(np.empty(0, np.uint64), IDS).tolist() == []


@pytest.mark.parametrize(
    "raw",
    [
        record(SAMPLE, 1, 7000, [1, 2]) + bytes(16),  # no size: would never end
        record(SAMPLE, 1, 7000, [1, 2])[:-8],
        record(SAMPLE, 1, 7000, [1, 2]) + record(LOST, 1, 7001, [3, 4, 5])[:-16],
    ],
)
def test_what_are_no_whole_records_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match="no record at byte"):
        record_starts(as_words(raw), IDS)


def test_bytes_are_taken_from_anywhere_but_not_from_behind_the_end() -> None:
    data = as_words(bytes(range(24)))
    assert [each.tobytes() for each in taken(data, np.array([0, 5, 21]), 3)] == [
        b"\0\1\2",
        b"\5\6\7",
        bytes([21, 22, 23]),
    ]
    assert len(taken(data, np.array([3, 4]), 0)) == 2
    with pytest.raises(IndexError):
        taken(data, np.array([22]), 3)
    with pytest.raises(IndexError):
        taken(data, np.array([0]), 25)
