# SPDX-License-Identifier: Apache-2.0
"""The catalogue's points of what a CPU does for networking."""

from __future__ import annotations

from typing import Final

from hopscope.probes.point import RETURN_KINDS, AttachMethod, Point

_FEW_RETURNS: Final = (
    "the kernel watches a few returns at a time: where more calls than that sleep at once, those beyond them are "
    "charged on after their end"
)


# Ends are attached before beginnings: what begins between the two would never end.
def _pair(*names: str) -> AttachMethod:
    """Return the way by the tracepoints ``NAME_exit`` and ``NAME_entry``."""
    hooks = tuple(f"{name}_{end}" for end in ("exit", "entry") for name in names)
    return AttachMethod("tp_btf", hooks, tuple(f"cpu_{hook}" for hook in hooks))


def _functions(kind: str, *names: str) -> AttachMethod:
    """Return the way by the entry and the return of functions."""
    after = RETURN_KINDS[kind]
    return AttachMethod(
        kind,
        names,
        tuple(f"cpu_{name}_{kind}" for name in names),
        returns=tuple(f"cpu_{name}_{after}" for name in names),
        differs=_FEW_RETURNS if kind == "kprobe" else "",
    )


_CALLS: Final = ("inet_sendmsg", "inet6_sendmsg", "inet_recvmsg", "inet6_recvmsg", "tcp_splice_read")
# Called through pointers, or from another file: no compiler inlines them.
_CONTROL: Final = (
    *("inet_create", "inet6_create", "inet_bind", "inet6_bind", "inet_dgram_connect", "inet_stream_connect"),
    *("inet_listen", "inet_accept", "inet_getname", "inet6_getname", "inet_shutdown", "inet_release", "inet6_release"),
    *("inet_ioctl", "inet6_ioctl", "sock_setsockopt", "sock_common_setsockopt", "sock_common_getsockopt"),
)
_SYSTEM_CALLS: Final = ("cpu_call_exit", "cpu_call_enter")
_BY_SYSTEM_CALL: Final = "by the system call and the file being a socket, with what the call does before it comes to it"

CPU: Final = (
    Point(
        "cpu.irq",
        "hard interrupts of devices begin and end",
        (AttachMethod("tp_btf", ("irq_handler_exit", "irq_handler_entry"), ("cpu_irq_exit", "cpu_irq_entry")),),
    ),
    Point(
        "cpu.timer",
        "interrupts of the CPU's own timer begin and end, which are not networking (x86)",
        (_pair("local_timer"),),
    ),
    Point(
        "cpu.ipi",
        "interrupts of one CPU to another begin and end, which are not networking",
        (_pair("reschedule", "call_function", "call_function_single", "irq_work"), _pair("ipi")),
    ),
    Point("cpu.softirq", "softirqs begin and end", (_pair("softirq"),)),
    Point(
        "cpu.poll",
        "a NAPI poll ends: its device, its packets",
        (AttachMethod("tp_btf", ("napi_poll",), ("cpu_napi_poll",)),),
    ),
    Point("cpu.timer_list", "a timer of milliseconds begins and ends to expire", (_pair("timer_expire"),)),
    Point("cpu.hrtimer", "a timer of high resolution begins and ends to expire", (_pair("hrtimer_expire"),)),
    Point(
        "cpu.tasklet",
        "a tasklet begins and ends to run",
        (
            _pair("tasklet"),
            AttachMethod(
                "fentry",
                ("tcp_tasklet_func",),
                ("cpu_tcp_tasklet_func_fentry",),
                returns=("cpu_tcp_tasklet_func_fexit",),
                differs="the tasklet of TCP alone",
            ),
            AttachMethod(
                "kprobe",
                ("tcp_tasklet_func",),
                ("cpu_tcp_tasklet_func_kprobe",),
                returns=("cpu_tcp_tasklet_func_kretprobe",),
                differs="the tasklet of TCP alone",
            ),
        ),
    ),
    Point(
        "cpu.work",
        "a work item begins and ends to run",
        (
            AttachMethod(
                "tp_btf",
                ("workqueue_execute_end", "workqueue_execute_start"),
                ("cpu_workqueue_execute_end", "cpu_workqueue_execute_start"),
            ),
        ),
    ),
    Point(
        "cpu.switch", "a thread leaves a CPU to another", (AttachMethod("tp_btf", ("sched_switch",), ("cpu_switch",)),)
    ),
    Point("cpu.exit", "a thread ends", (AttachMethod("tp_btf", ("sched_process_exit",), ("cpu_exit",)),)),
    Point(
        "cpu.call",
        "socket calls of IPv4 and IPv6 begin and end",
        (
            _functions("fentry", *_CALLS),
            AttachMethod("tp_btf", ("sys_exit", "sys_enter"), _SYSTEM_CALLS, differs=_BY_SYSTEM_CALL),
            _functions("kprobe", *_CALLS),
        ),
    ),
    Point(
        "cpu.control",
        "socket calls that neither send nor receive begin and end",
        (
            _functions("fentry", *_CONTROL),
            AttachMethod(
                "tp_btf",
                ("sys_exit", "sys_enter"),
                _SYSTEM_CALLS,
                differs=f"{_BY_SYSTEM_CALL}; without sockets that are closed because their process ends, and before "
                "Linux 6.6 without what close leaves to the end of the system call",
            ),
            _functions("kprobe", *_CONTROL),
        ),
    ),
    Point(
        "cpu.packet",
        "socket calls of packet sockets begin and end, where cpu.call rests on functions",
        (
            _functions("fentry", "packet_sendmsg", "packet_recvmsg"),
            _functions("kprobe", "packet_sendmsg", "packet_recvmsg"),
        ),
    ),
    Point(
        "cpu.sendpage",
        "sendfile and splice to a socket begin and end, where cpu.call rests on functions (until Linux 6.5; since then "
        "they are socket calls)",
        (
            _functions("fentry", "inet_sendpage"),
            _functions("kprobe", "inet_sendpage"),
        ),
    ),
    Point(
        "cpu.uring",
        "a socket call of io_uring ends, where cpu.call rests on system calls; attached once io_uring is in use, for "
        "every packet comes by",
        (
            AttachMethod(
                "tp_btf",
                ("sock_send_length", "sock_recv_length", "io_uring_submit_req", "io_uring_complete"),
                ("cpu_sent", "cpu_received", "cpu_uring_submit", "cpu_uring_complete"),
                helpers=_SYSTEM_CALLS,
                differs="from the end of the request before; a call that io_uring repeats outside its system call and "
                "its workers is counted as unseen",
            ),
        ),
    ),
    Point(
        "cpu.uring_tasks",
        "threads that use io_uring at the start, where cpu.call rests on system calls",
        (AttachMethod("iter", ("task",), ("cpu_uring_tasks",)),),
    ),
    Point(
        "cpu.busy_poll",
        "a system call polls a device busily (napi_busy_loop)",
        (
            AttachMethod("fentry", ("napi_busy_loop",), ("cpu_busy_fentry",), returns=("cpu_busy_fexit",)),
            AttachMethod(
                "tp_btf",
                ("napi_poll",),
                ("cpu_napi_poll",),
                helpers=_SYSTEM_CALLS,
                differs="up to the end of each poll, from the begin of the call that waits",
            ),
            AttachMethod("kprobe", ("napi_busy_loop",), ("cpu_busy_kprobe",), returns=("cpu_busy_kretprobe",)),
        ),
    ),
    Point(
        "cpu.sample",
        "the clock looks what the CPU is at, and takes the kernel's stack",
        (AttachMethod("perf_event", ("cpu-clock",), ("cpu_sample",)),),
    ),
    Point(
        "cpu.sample_alone",
        "the same where nothing else is attached: whatever the CPU does in the kernel",
        (AttachMethod("perf_event", ("cpu-clock",), ("cpu_sample_alone",)),),
    ),
)
