# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.model.stack_parts import part_of_stack

CALL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64")
SEND = (
    *CALL,
    "__x64_sys_sendto",
    "__sys_sendto",
    "udp_sendmsg",
    "__local_bh_enable_ip",
    "do_softirq",
    "handle_softirqs",
)
IDLE = ("do_idle", "default_idle", "asm_sysvec_apic_timer_interrupt", "__irq_exit_rcu", "handle_softirqs")
THREAD = ("ret_from_fork_asm", "ret_from_fork", "kthread")
WORK = (*THREAD, "worker_thread", "process_one_work")


@pytest.mark.parametrize(
    ("part", "frames"),
    [
        ("net_rx", (*SEND, "net_rx_action", "__napi_poll", "process_backlog")),
        ("net_tx", (*IDLE, "net_tx_action", "pfifo_fast_dequeue")),
        ("ksoftirqd", (*THREAD, "smpboot_thread_fn", "run_ksoftirqd", "handle_softirqs", "net_rx_action")),
        ("timer", (*IDLE, "run_timer_softirq", "call_timer_fn", "tcp_write_timer", "tcp_retransmit_skb")),
        ("timer", (*SEND, "hrtimer_run_softirq", "__hrtimer_run_queues", "tcp_pace_kick", "tcp_write_xmit")),
        ("tasklet", (*IDLE, "tasklet_action_common", "tcp_tasklet_func", "tcp_tsq_handler")),
        ("tasklet", (*IDLE, "workqueue_softirq_action", "bh_worker", "process_one_work", "tcp_tsq_workfn")),
        ("workqueue", (*WORK, "wg_packet_encrypt_worker", "chacha20poly1305_encrypt_sg_inplace")),
        ("napi_thread", (*THREAD, "napi_threaded_poll", "__napi_poll")),
        ("busy_poll", (*CALL, "do_epoll_wait", "napi_busy_loop", "__napi_poll")),
        ("send", SEND[:-2]),
        ("send", (*CALL, "ksys_write", "vfs_write", "sock_write_iter", "tcp_sendmsg")),
        ("receive", (*CALL, "__sys_recvmsg", "inet_recvmsg")),
        ("control", (*CALL, "__x64_sys_connect", "__sys_connect", "inet_stream_connect")),
        ("control", (*CALL, "__x64_sys_close", "__fput", "sock_close", "__sock_release", "inet_release")),
        ("io_uring", (*THREAD[:-1], "io_wq_worker", "io_worker_handle_work", "io_send", "sock_sendmsg")),
        # Between two softirqs that a thread calls itself, it is still in its call.
        ("send", SEND),
        ("send", (*SEND, "__traceiter_softirq_entry", "bpf_trace_run1")),
    ],
)
def test_functions_tell_the_part(part: str, frames: tuple[str, ...]) -> None:
    assert part_of_stack(frames) == part


@pytest.mark.parametrize(
    "frames",
    [
        IDLE,
        (*IDLE, "run_timer_softirq", "call_timer_fn", "process_timeout"),
        (*IDLE, "rcu_core_si", "rcu_do_batch"),
        (*SEND, "run_timer_softirq", "call_timer_fn", "delayed_work_timer_fn"),
        (*WORK, "blk_mq_run_work_fn"),
        (*THREAD, "nfsd", "svc_recv", "sock_recvmsg"),
        (*CALL, "__x64_sys_sendto", "__sys_sendto", "unix_dgram_sendmsg"),
        (*CALL, "__sys_recvmsg", "netlink_recvmsg"),
        (*CALL, "ksys_write", "vfs_write", "ext4_file_write_iter"),
        (*CALL, "do_epoll_wait", "schedule"),
    ],
)
def test_what_is_not_networking_is_in_no_part(frames: tuple[str, ...]) -> None:
    assert part_of_stack(frames) == ""
