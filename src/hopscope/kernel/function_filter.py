# SPDX-License-Identifier: Apache-2.0
"""The filter of a function's values: a condition whose comparisons are with numbers, as a list of tests for BPF.

Each test says which one comes next if it holds and if not, always one further on, or that it is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopscope.bpf.layout import HopFetchIs, HopFetchLimits, HopFetchNext
from hopscope.errors import UsageError
from hopscope.model.condition import FAILS, PASSES, Comparison, Condition, comparisons, parse, steps, written

_SIGNS: Final = {
    "==": HopFetchIs.HOP_FETCH_IS_EQUAL,
    "!=": HopFetchIs.HOP_FETCH_IS_OTHER,
    "<": HopFetchIs.HOP_FETCH_IS_LESS,
    "<=": HopFetchIs.HOP_FETCH_IS_AT_MOST,
    ">": HopFetchIs.HOP_FETCH_IS_MORE,
    ">=": HopFetchIs.HOP_FETCH_IS_AT_LEAST,
    "&": HopFetchIs.HOP_FETCH_HAS_BITS,
}
_DECIDED: Final = {PASSES: HopFetchNext.HOP_FETCH_PASSES, FAILS: HopFetchNext.HOP_FETCH_FAILS}


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of a value, by its path, and what follows."""

    path: str
    kind: HopFetchIs
    number: int
    if_true: int
    if_false: int


def parse_filter(text: str) -> Condition:
    """Return what the text says.

    Raises
    ------
    UsageError
        It is no condition on numbers, or has too many comparisons.
    """
    condition = parse(text)
    for each in comparisons(condition):
        _number_of(each)
    most = int(HopFetchLimits.HOP_FETCH_TESTS)
    if (count := sum(1 for _ in comparisons(condition))) > most:
        raise UsageError(
            f"A filter takes at most {most} comparisons, '{text}' has {count}", "Filter with `hopscope sql`"
        )
    return condition


def numbers_of(condition: Condition) -> list[tuple[str, int]]:
    """Return the path of each value and the number with which it is compared."""
    return [(each.field, _number_of(each)) for each in comparisons(condition)]


def in_order(condition: Condition) -> list[Test]:
    """Return it as tests, the first of which begins."""
    return [
        Test(
            each.comparison.field,
            _SIGNS[each.comparison.sign],
            _number_of(each.comparison),
            _DECIDED.get(each.if_true, each.if_true),
            _DECIDED.get(each.if_false, each.if_false),
        )
        for each in steps(condition)
    ]


def _number_of(comparison: Comparison) -> int:
    if isinstance(comparison.value, int):
        return comparison.value
    raise UsageError(
        f"A function's values are compared with whole numbers, and {written(comparison.value)} is none",
        "Write, for example, if len > 1000 and flags & 0x40",
    )
