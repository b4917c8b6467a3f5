# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.analysis.stacks import Stack
from hopscope.collectors.cpu_stacks import decided

SEND = Stack("send", ("do_syscall_64", "__sys_sendto", "sock_sendmsg", "udp_sendmsg"), 7)
WAIT = ("do_syscall_64", "do_epoll_wait", "napi_busy_loop", "__napi_poll")


@pytest.mark.parametrize("others", [[], [Stack("undecided", ("do_syscall_64", "do_epoll_wait"), 3)]])
def test_what_an_interrupt_does_before_its_softirqs_is_no_part(others: list[Stack]) -> None:
    prologue = Stack("send", ("do_syscall_64", "tcp_sendmsg", "asm_sysvec_apic_timer_interrupt", "handle_softirqs"), 5)
    assert decided([SEND, prologue, *others]) == [SEND]


@pytest.mark.parametrize("part", ["undecided", "receive"])
def test_busy_polling_is_told_by_its_function(part: str) -> None:
    assert decided([SEND, Stack(part, WAIT, 2)]) == [Stack("busy_poll", WAIT[2:], 2), SEND]


@pytest.mark.parametrize(("outer", "part"), [("do_syscall_64", "receive"), ("io_wq_worker", "io_uring")])
def test_what_io_uring_runs_is_told_by_who_runs_it(outer: str, part: str) -> None:
    frames = (outer, "io_recv", "sock_recvmsg")
    assert decided([Stack("undecided", frames, 4)]) == [Stack(part, frames, 4)]


def test_what_the_kernel_side_has_decided_stays() -> None:
    stacks = [Stack("net_rx", ("handle_softirqs", "net_rx_action"), 9), SEND]
    assert decided(stacks) == stacks
