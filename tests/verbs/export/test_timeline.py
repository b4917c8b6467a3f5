# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopscope.term import protobuf as pb
from hopscope.verbs.export.timeline import Slices, interleaved, lanes, nested

INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 15)), max_size=30)


@given(INTERVALS)
def test_no_two_overlap_on_a_lane_and_there_are_no_more_lanes_than_needed(drawn: list[tuple[int, int, int]]) -> None:
    group, begin, length = (np.array([each[at] for each in drawn], np.int64) for at in range(3))
    end = begin + length
    lane = lanes(group, begin, end)
    for one in range(len(drawn)):
        for other in range(one):
            if group[one] == group[other] and lane[one] == lane[other]:
                assert end[one] <= begin[other] or end[other] <= begin[one]
    for each in set(group.tolist()):
        own = group == each
        at_once = max(int(((begin[own] <= at) & (end[own] > at)).sum()) for at in begin[own].tolist())
        assert set(lane[own].tolist()) == set(range(at_once))


@given(INTERVALS)
def test_what_is_nested_opens_and_closes_like_brackets(drawn: list[tuple[int, int, int]]) -> None:
    track, begin, length = (np.array([each[at] for each in drawn], np.int64) for at in range(3))
    rest = np.zeros((5, len(drawn)), np.int64)
    kept = nested(Slices(track, begin, begin + length, *rest))
    if not len(kept):
        assert not drawn or len(drawn) > 1
        return
    slices, whose, opens = interleaved([kept])
    open_ones: list[int] = []
    for each, begins in zip(whose.tolist(), opens.tolist(), strict=True):
        if begins:
            open_ones.append(each)
        else:
            last = open_ones.pop()
            same = (slices.track, slices.begin_ns, slices.end_ns)
            assert [array[last] for array in same] == [array[each] for array in same]
    assert not open_ones


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5))
def test_numbers_of_any_width_are_read_as_they_were(values: list[int]) -> None:
    array = np.array(values, np.int64)
    rows = pb.encoded(pb.inside(1, pb.numbers(3, "value", array)), {"value": array})
    for value, row in zip(values, rows, strict=True):
        assert row[1] == len(row) - 2
        bits = sum((int(byte) & 0x7F) << 7 * place for place, byte in enumerate(row[3:])) & (1 << 64) - 1
        assert [int(byte) >> 7 for byte in row[3:]] == [1] * (len(row) - 4) + [0]
        assert bits == value & (1 << 64) - 1
    assert pb.number(1, 300) == b"\x08\xac\x02"
