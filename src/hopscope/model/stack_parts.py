# SPDX-License-Identifier: Apache-2.0
"""Which part of networking a kernel stack belongs to, by the functions in it alone."""

from __future__ import annotations

import re
from typing import Final

from hopscope.model.callbacks import is_network_callback

SOFTIRQS: Final = frozenset({"handle_softirqs", "__do_softirq"})  # the first since 6.11, out of the second
BUSY_POLLS: Final = frozenset({"napi_busy_loop", "napi_busy_loop_rcu"})
IO_WORKERS: Final = frozenset({"io_wq_worker", "io_wqe_worker", "io_sq_thread"})
_NAPI_THREADS: Final = frozenset({"napi_threaded_poll", "run_backlog_napi"})
_NETWORK_SOFTIRQS: Final = {"net_rx_action": "net_rx", "net_tx_action": "net_tx"}
_TRACING: Final = ("__traceiter_", "bpf_trace_run", "__bpf_trace_")
_TIMER_SOFTIRQS: Final = frozenset({"run_timer_softirq", "hrtimer_run_softirq"})

_SEND: Final = """
    sock_sendmsg __sock_sendmsg sock_write_iter splice_to_socket sock_sendpage inet_sendmsg inet6_sendmsg
    __sys_sendto __sys_sendmsg ___sys_sendmsg ____sys_sendmsg __sys_sendmmsg"""
_RECEIVE: Final = """
    sock_recvmsg sock_read_iter sock_splice_read inet_recvmsg inet6_recvmsg
    __sys_recvfrom __sys_recvmsg ___sys_recvmsg ____sys_recvmsg __sys_recvmmsg do_recvmmsg"""
_CONTROL: Final = """
    sock_close __sock_release sock_ioctl __sys_socket __sys_bind __sys_connect __sys_listen __sys_accept4 __sys_shutdown
    __sys_getsockname __sys_getpeername __sys_setsockopt __sys_getsockopt do_sock_setsockopt do_sock_getsockopt"""
_CALLS: Final = {
    name: part
    for part, names in (("send", _SEND), ("receive", _RECEIVE), ("control", _CONTROL))
    for name in names.split()
}
# The system call itself, such as __x64_sys_sendto.
_SYSTEM_CALL: Final = re.compile(r"__(?:x64|arm64)_sys_(\w+)")
_SYSTEM_CALLS: Final = {
    **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), "send"),
    **dict.fromkeys(("recvfrom", "recvmsg", "recvmmsg"), "receive"),
    **dict.fromkeys(("socket", "bind", "connect", "listen", "accept", "accept4", "shutdown"), "control"),
    **dict.fromkeys(("getsockname", "getpeername", "setsockopt", "getsockopt"), "control"),
}
# Operations of sockets that carry no packets.
_LOCAL: Final = re.compile(
    r"(?:unix|netlink)_(?:\w+_)?(?:sendmsg|recvmsg|splice_read|sendpage|release|release_sock|create|create1|bind|connect|"
    r"accept|listen|getname|shutdown|setsockopt|getsockopt|ioctl)"
)


def part_of_stack(frames: tuple[str, ...]) -> str:
    """Return the part that a stack is in, empty if it is not networking.

    Hard interrupts cannot be seen, for the clock waits until they end. A system call for a socket that has not come to
    the socket's protocol yet counts, whatever the protocol is. ``read`` and ``write`` count from the socket on.

    Parameters
    ----------
    frames
        Names of kernel functions, the outermost first.
    """
    softirq = next((place for place in range(len(frames) - 1, -1, -1) if frames[place] in SOFTIRQS), -1)
    if softirq >= 0 and not _between_softirqs(frames, softirq):
        return _part_of_softirq(frames[softirq + 1 :], ksoftirqd="run_ksoftirqd" in frames)
    seen = set(frames)
    if not seen.isdisjoint(_NAPI_THREADS):
        return "napi_thread"
    if "process_one_work" in seen:
        return "workqueue" if any(map(is_network_callback, frames)) else ""
    if not seen.isdisjoint(BUSY_POLLS):
        return "busy_poll"
    if not seen.isdisjoint(IO_WORKERS):
        return "io_uring" if part_of_call(frames) else ""
    return "" if "kthread" in seen else part_of_call(frames)


def part_of_call(frames: tuple[str, ...]) -> str:
    """Return the part of the outermost function of a socket call; empty for none, or where no packets are carried."""
    part = next(filter(None, map(_part_of_function, frames)), "")
    return "" if part and any(map(_LOCAL.fullmatch, frames)) else part


def _part_of_function(name: str) -> str:
    call = _SYSTEM_CALL.fullmatch(name)
    return _SYSTEM_CALLS.get(call[1], "") if call else _CALLS.get(name, "")


def _between_softirqs(frames: tuple[str, ...], softirq: int) -> bool:
    """Tell whether a thread calls its softirqs, but none of them runs yet or any more: that is still the thread's time.

    What an interrupt does there is not: the clock, held off by it, comes there more often than such moments are long.
    """
    runs = frames[softirq + 1 : softirq + 2]
    return "do_softirq" in frames[:softirq] and (not runs or runs[0].startswith(_TRACING))


def _part_of_softirq(frames: tuple[str, ...], *, ksoftirqd: bool) -> str:
    for name in frames:
        if name in _NETWORK_SOFTIRQS:
            return "ksoftirqd" if ksoftirqd else _NETWORK_SOFTIRQS[name]
    if not any(map(is_network_callback, frames)):
        return ""
    return "tasklet" if _TIMER_SOFTIRQS.isdisjoint(frames) else "timer"
