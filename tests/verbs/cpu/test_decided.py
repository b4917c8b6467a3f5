# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.verbs.cpu.stacks import seen_as

SEND = ("do_syscall_64", "__sys_sendto", "sock_sendmsg", "udp_sendmsg")
WAIT = ("do_syscall_64", "do_epoll_wait", "napi_busy_loop", "__napi_poll")


@pytest.mark.parametrize("part", ["send", "undecided"])
def test_what_an_interrupt_does_before_its_softirqs_is_no_part(part: str) -> None:
    assert seen_as(part, (*SEND, "asm_sysvec_apic_timer_interrupt", "handle_softirqs")) is None


def test_a_call_that_was_no_networking_is_no_part() -> None:
    assert seen_as("undecided", ("do_syscall_64", "do_epoll_wait")) is None


@pytest.mark.parametrize("part", ["undecided", "receive"])
def test_busy_polling_is_told_by_its_function(part: str) -> None:
    assert seen_as(part, WAIT) == ("busy_poll", WAIT[2:])


@pytest.mark.parametrize(("outer", "part"), [("do_syscall_64", "receive"), ("io_wq_worker", "io_uring")])
def test_what_io_uring_runs_is_told_by_who_runs_it(outer: str, part: str) -> None:
    frames = (outer, "io_recv", "sock_recvmsg")
    assert seen_as("undecided", ("outermost", *frames)) == (part, frames)


@pytest.mark.parametrize(("part", "frames"), [("net_rx", ("handle_softirqs", "net_rx_action")), ("send", SEND)])
def test_what_the_kernel_side_has_decided_stays(part: str, frames: tuple[str, ...]) -> None:
    assert seen_as(part, frames) == (part, frames)
