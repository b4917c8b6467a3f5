# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.analysis.parts import PARTS
from hopscope.analysis.stacks import Stack, fold, merge

STACKS = st.lists(
    st.builds(
        Stack,
        st.sampled_from([*PARTS, "unheard of"]),
        st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
        st.integers(0, 5),
        st.sampled_from(["", "g"]),
    ),
    max_size=30,
)


def names(addresses: np.ndarray) -> list[str]:
    """Name an address by the hundred that it is in."""
    return [f"f{address // 100}" for address in addresses.tolist()]


def test_a_caller_is_looked_up_before_the_address_that_it_returns_to() -> None:
    rows = np.array([[300, 200, 101, 0]], np.uint64)
    assert fold(rows, ["send"], [""], [1], names) == [Stack("send", ("f1", "f1", "f3"), 1)]


def test_equal_stacks_are_one_and_parts_and_groups_are_apart() -> None:
    rows = np.array([[310, 205], [320, 206], [310, 205], [310, 205]], np.uint64)
    assert fold(rows, ["send", "send", "receive", "send"], ["", "", "", "g"], [2, 3, 1, 1], names) == [
        Stack("send", ("f2", "f3"), 5),
        Stack("send", ("f2", "f3"), 1, "g"),
        Stack("receive", ("f2", "f3"), 1),
    ]


def test_nothing_sampled_is_nothing() -> None:
    assert fold(np.empty((0, 8), np.uint64), [], [], [], names) == []
    assert fold(np.zeros((2, 4), np.uint64), ["send"] * 2, [""] * 2, [1, 1], names) == [Stack("send", (), 2)]


def test_names_are_asked_for_once() -> None:
    asked: list[int] = []

    def counting(addresses: np.ndarray) -> list[str]:
        asked.extend(addresses.tolist())
        return names(addresses)

    fold(np.array([[300, 200]] * 100, np.uint64), ["send"] * 100, [""] * 100, [1] * 100, counting)
    assert sorted(asked) == [199, 300]


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("irq", "common_interrupt"),
        ("net_rx", "handle_softirqs"),
        ("net_tx", "__do_softirq"),
        ("ksoftirqd", "run_ksoftirqd"),
        ("napi_thread", "napi_threaded_poll"),
        ("busy_poll", "napi_busy_loop"),
        ("send", "do_syscall_64"),
        ("receive", "do_el0_svc"),
        ("io_uring", "io_wq_worker"),
    ],
)
def test_what_led_to_the_part_is_left_out(part: str, entry: str) -> None:
    known = dict(enumerate(["outer", entry, "inner", entry, "poll", "leaf"], 1))
    rows = np.array([[6, 6, 5, 4, 3, 2]], np.uint64)
    folded = fold(rows, [part], [""], [1], lambda asked: [known[each] for each in asked.tolist()])
    assert folded == [Stack(part, (entry, "poll", "leaf"), 1)]


def test_a_stack_without_its_entry_stays_whole() -> None:
    assert fold(np.array([[300, 201]], np.uint64), ["net_rx"], [""], [1], names)[0].frames == ("f2", "f3")


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 400), min_size=1, max_size=4), st.sampled_from(list(PARTS))), max_size=40
    )
)
def test_folding_keeps_every_sample(samples: list[tuple[list[int], str]]) -> None:
    rows = np.zeros((len(samples), 4), np.uint64)
    for row, (addresses, _) in zip(rows, samples, strict=True):
        row[: len(addresses)] = addresses
    parts = [part for _, part in samples]
    folded = fold(rows, parts, [""] * len(samples), [1] * len(samples), names)
    assert sum(stack.samples for stack in folded) == len(samples)
    assert {part: sum(s.samples for s in folded if s.part == part) for part in set(parts)} == Counter(parts)


@given(STACKS)
def test_merging_keeps_counts_and_is_done_after_once(stacks: list[Stack]) -> None:
    merged = merge(stacks)
    assert merge(merged) == merged
    assert len({(stack.part, stack.group, stack.frames) for stack in merged}) == len(merged)
    before = Counter[str]()
    for stack in stacks:
        before[stack.part] += stack.samples
    after = Counter[str]()
    for stack in merged:
        after[stack.part] += stack.samples
    assert after == before


def test_path_begins_with_part_and_group() -> None:
    assert Stack("send", ("a", "b"), 1).path() == ("send", "a", "b")
    assert Stack("send", ("a", "b"), 1, "nginx").path() == ("send", "nginx", "a", "b")
