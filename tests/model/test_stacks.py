# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.parts import PARTS
from hopscope.model.stacks import Stack, merge, trimmed

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


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("irq", "common_interrupt"),
        ("net_rx", "handle_softirqs"),
        ("net_tx", "__do_softirq"),
        ("timer", "handle_softirqs"),
        ("tasklet", "__do_softirq"),
        ("ksoftirqd", "run_ksoftirqd"),
        ("napi_thread", "napi_threaded_poll"),
        ("workqueue", "process_one_work"),
        ("busy_poll", "napi_busy_loop"),
        ("send", "do_syscall_64"),
        ("receive", "do_el0_svc"),
        ("control", "do_syscall_64"),
        ("io_uring", "io_wq_worker"),
    ],
)
def test_what_led_to_the_part_is_left_out(part: str, entry: str) -> None:
    assert trimmed(part, ("outer", entry, "inner", entry, "poll", "leaf")) == (entry, "poll", "leaf")


def test_a_stack_without_its_entry_stays_whole() -> None:
    assert trimmed("net_rx", ("ip_rcv", "udp_rcv")) == ("ip_rcv", "udp_rcv")


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
