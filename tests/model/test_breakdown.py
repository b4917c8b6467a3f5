# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.breakdown import Share, breakdown, split_ns, wilson
from hopscope.model.parts import PARTS
from hopscope.model.stacks import Stack

FRAMES = [("tcp_ack",), ("tcp_ack", "kfree"), ("unheard_of",), ("nf_hook_slow",), ("__napi_poll", "veth_poll"), ()]


def test_shares_are_of_their_part() -> None:
    stacks = [
        Stack("send", ("tcp_sendmsg",), 3),
        Stack("send", ("tcp_sendmsg", "tcp_push"), 3, "group"),
        Stack("send", ("tcp_sendmsg", "kfree_skb"), 2),
        Stack("net_rx", ("unheard_of",), 1),
    ]
    found = breakdown(stacks, {"send": 1_001, "net_rx": 7})
    assert [(s.part, s.category, s.detail, s.samples, s.of_part, s.ns) for s in found] == [
        ("net_rx", "other", "", 1, 1.0, 7),
        ("send", "tcp", "", 6, 0.75, 751),
        ("send", "memory", "skb", 2, 0.25, 250),
    ]


def test_time_without_samples_is_said_to_be_so() -> None:
    assert breakdown([], {"irq": 5, "send": 0}) == [Share("irq", "unsampled", "", 0, 1.0, 0.0, 1.0, 5)]
    assert [(s.category, s.ns) for s in breakdown([Stack("irq", ("a",), 0)], {"irq": 5})] == [("unsampled", 5)]


def test_samples_without_time_have_shares_all_the_same() -> None:
    (share,) = breakdown([Stack("send", ("tcp_ack",), 4)], {})
    assert (share.of_part, share.ns) == (1.0, 0)


@given(
    st.lists(st.tuples(st.sampled_from(list(PARTS)), st.sampled_from(FRAMES), st.integers(0, 10**6)), max_size=40),
    st.dictionaries(st.sampled_from(list(PARTS)), st.integers(0, 2**62)),
)
def test_every_part_is_whole(rows: list[tuple[str, tuple[str, ...], int]], exact_ns: dict[str, int]) -> None:
    found = breakdown([Stack(*row) for row in rows], exact_ns)
    for part in {share.part for share in found} | {part for part, ns in exact_ns.items() if ns}:
        mine = [share for share in found if share.part == part]
        assert sum(share.ns for share in mine) == exact_ns.get(part, 0)
        assert sum(share.samples for share in mine) == sum(n for name, _, n in rows if name == part)
        assert sum(share.of_part for share in mine) == pytest.approx(1)
        assert all(0 <= share.low <= share.of_part <= share.high <= 1 for share in mine)
        assert len({(share.category, share.detail) for share in mine}) == len(mine)


@given(st.integers(0, 2**62), st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any))
def test_split_is_exact_and_no_part_is_a_nanosecond_off(total_ns: int, samples: list[int]) -> None:
    shares = split_ns(total_ns, samples)
    assert sum(shares) == total_ns
    for share, each in zip(shares, samples, strict=True):
        assert abs(share * sum(samples) - total_ns * each) < sum(samples)


def test_wilson_is_as_published() -> None:
    # R. G. Newcombe, "Two-sided confidence intervals for the single proportion", table I, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(29, 29) == pytest.approx((0.8830, 1), abs=5e-5)
    assert wilson(0, 0) == (0, 1)


@pytest.mark.parametrize("part", [0.01, 0.1, 0.5])
def test_the_interval_holds_the_truth_as_often_as_it_says(part: float) -> None:
    of = 1_000
    holds = 0.0
    for samples in range(of + 1):
        low, high = wilson(samples, of)
        if low <= part <= high:
            holds += comb(of, samples) * part**samples * (1 - part) ** (of - samples)
    assert 0.94 < holds < 0.965
