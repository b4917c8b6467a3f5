# SPDX-License-Identifier: Apache-2.0
"""Which rule dropped packets, by two readings of all rules that drop."""

from __future__ import annotations

import pytest

from hopscope.kernel.nft import DropRule
from hopscope.verbs.drops.rules import by_which

UNKNOWN = "an nftables rule that could not be determined"


def rule(handle: int, packets: int | None) -> DropRule:
    return DropRule("inet", "f", "i", handle, packets)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([rule(1, None)], [rule(1, None)], "the nftables rule inet f i handle 1"),
        ([rule(1, 5), rule(2, 7)], [rule(1, 9), rule(2, 7)], "the nftables rule inet f i handle 1"),
        ([rule(1, 5), rule(2, None)], [rule(1, 5), rule(2, None)], "the nftables rule inet f i handle 2"),
        (
            [rule(1, 5), rule(2, None)],
            [rule(1, 9), rule(2, None)],
            "one or more of the nftables rules inet f i handle 1, inet f i handle 2",
        ),
        # One that was deleted meanwhile may have dropped them, and one that was made.
        (
            [rule(1, None), rule(2, 7)],
            [rule(1, None)],
            "one or more of the nftables rules inet f i handle 1, inet f i handle 2",
        ),
        ([], [rule(3, 4)], "the nftables rule inet f i handle 3"),
        # Counters that counted less than was dropped.
        ([rule(1, 5)], [rule(1, 8)], UNKNOWN),
        ([rule(1, 5)], [rule(1, 5)], UNKNOWN),
        ([], [], UNKNOWN),
        (None, [rule(1, 5)], "an nftables rule; the rules cannot be read"),
        ([rule(1, 5)], None, "an nftables rule; the rules cannot be read"),
    ],
)
def test_rule_is_named_only_where_no_other_can_have_dropped(
    before: list[DropRule] | None, now: list[DropRule] | None, said: str
) -> None:
    assert by_which(before, now, 4) == said


def test_no_more_than_four_are_listed() -> None:
    rules = [rule(number, None) for number in range(1, 8)]
    assert by_which(rules, rules, 1).endswith("inet f i handle 4 and 3 more")
