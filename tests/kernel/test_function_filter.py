# SPDX-License-Identifier: Apache-2.0
"""Filters of functions' values mean what they say, whatever the values are."""

from __future__ import annotations

import itertools
import operator

import pytest

from hopscope.bpf.layout import HopFetchIs, HopFetchNext
from hopscope.errors import UsageError
from hopscope.kernel.function_filter import in_order, parse_filter

HOLDS = {
    HopFetchIs.HOP_FETCH_IS_EQUAL: operator.eq,
    HopFetchIs.HOP_FETCH_IS_OTHER: operator.ne,
    HopFetchIs.HOP_FETCH_IS_LESS: operator.lt,
    HopFetchIs.HOP_FETCH_IS_AT_MOST: operator.le,
    HopFetchIs.HOP_FETCH_IS_MORE: operator.gt,
    HopFetchIs.HOP_FETCH_IS_AT_LEAST: operator.ge,
    HopFetchIs.HOP_FETCH_HAS_BITS: operator.and_,
}


def passes(text: str, values: dict[str, int]) -> bool:
    """Follow the tests as the program does: forwards, each at most once."""
    tests, following = in_order(parse_filter(text)), 0
    for index, test in enumerate(tests):
        if index == following:
            is_true = HOLDS[test.kind](values[test.path], test.number)
            following = test.if_true if is_true else test.if_false
            assert following > index
    assert following in set(HopFetchNext)
    return following == HopFetchNext.HOP_FETCH_PASSES


@pytest.mark.parametrize(
    "text",
    [
        "a == 1",
        "a != -1 && b < 2",
        "a <= 0 || b >= 1",
        "a > 0 && b > 0 || c & 0x2",
        "a > 0 && (b > 0 || c & 2)",
        "(a == 1 || b == 1) && (b == 2 || c == 2)",
        "((a == 1)) || (b == 1 && (c == 0 || a == 2)) && c != 2",
        "not (a > 0 and (b > 0 or c in (1, 2)))",
        "a not in (0, 1) or not b == 1 and c > 0",
    ],
)
def test_a_filter_is_what_python_takes_it_for(text: str) -> None:
    same = text.replace("&&", "and").replace("||", "or")
    for a, b, c in itertools.product(range(-1, 3), repeat=3):
        values = {"a": a, "b": b, "c": c}
        # Python's & binds closer than its comparisons, of which none is beside it here.
        assert passes(text, values) == bool(eval(same, {}, values)), (text, values)  # noqa: S307


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a >",
        "1 < a",
        "a == 1 &&",
        "(a == 1",
        "a == 1)",
        "a == 1 b == 2",
        "a ~ 1",
        "a in ()",
        "a == 'x",
        "(" * 5000,
    ],
)
def test_what_is_no_filter_is_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a condition: expected .+ at "):
        parse_filter(text)


@pytest.mark.parametrize("value", ["b", "1x", "'x'", "1ms"])
def test_values_of_functions_are_numbers(value: str) -> None:
    with pytest.raises(UsageError, match=r"are compared with whole numbers, and .+ is none"):
        parse_filter(f"a == {value}")


def test_a_filter_may_have_sixteen_comparisons() -> None:
    parse_filter(" && ".join(["a != 010"] * 16))
    with pytest.raises(UsageError, match=r"A filter takes at most 16 comparisons, '.*' has 17"):
        parse_filter(" && ".join(["a != 1"] * 17))
