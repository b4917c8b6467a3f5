# SPDX-License-Identifier: Apache-2.0
"""Names of system calls on sockets, and of those in which threads sleep, by machine type (the kernel's ABI)."""

from __future__ import annotations

from typing import Final

# arch/x86/entry/syscalls/syscall_64.tbl
_X86_64: Final = {
    0: "read",
    1: "write",
    3: "close",
    7: "poll",
    16: "ioctl",
    17: "pread64",
    19: "readv",
    20: "writev",
    23: "select",
    24: "sched_yield",
    26: "msync",
    34: "pause",
    35: "nanosleep",
    40: "sendfile",
    41: "socket",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    48: "shutdown",
    49: "bind",
    50: "listen",
    51: "getsockname",
    52: "getpeername",
    54: "setsockopt",
    55: "getsockopt",
    61: "wait4",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    202: "futex",
    208: "io_getevents",
    230: "clock_nanosleep",
    232: "epoll_wait",
    233: "epoll_ctl",
    247: "waitid",
    257: "openat",
    270: "pselect6",
    271: "ppoll",
    275: "splice",
    281: "epoll_pwait",
    288: "accept4",
    299: "recvmmsg",
    307: "sendmmsg",
    327: "preadv2",
    328: "pwritev2",
    426: "io_uring_enter",
    441: "epoll_pwait2",
    449: "futex_waitv",
}
# include/uapi/asm-generic/unistd.h
_AARCH64: Final = {
    4: "io_getevents",
    21: "epoll_ctl",
    22: "epoll_pwait",
    29: "ioctl",
    32: "flock",
    56: "openat",
    57: "close",
    63: "read",
    64: "write",
    65: "readv",
    66: "writev",
    67: "pread64",
    71: "sendfile",
    72: "pselect6",
    73: "ppoll",
    76: "splice",
    82: "fsync",
    83: "fdatasync",
    95: "waitid",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    124: "sched_yield",
    133: "rt_sigsuspend",
    137: "rt_sigtimedwait",
    198: "socket",
    200: "bind",
    201: "listen",
    202: "accept",
    203: "connect",
    204: "getsockname",
    205: "getpeername",
    206: "sendto",
    207: "recvfrom",
    208: "setsockopt",
    209: "getsockopt",
    210: "shutdown",
    211: "sendmsg",
    212: "recvmsg",
    242: "accept4",
    243: "recvmmsg",
    260: "wait4",
    269: "sendmmsg",
    286: "preadv2",
    287: "pwritev2",
    426: "io_uring_enter",
    441: "epoll_pwait2",
    449: "futex_waitv",
}
# include/uapi/linux/io_uring.h: requests that hopscope records.
_REQUESTS: Final = {
    1: "readv",
    2: "writev",
    6: "poll_add",
    9: "sendmsg",
    10: "recvmsg",
    13: "accept",
    16: "connect",
    22: "read",
    23: "write",
    26: "send",
    27: "recv",
    34: "shutdown",
    45: "socket",
    47: "send_zc",
    48: "sendmsg_zc",
    49: "read_multishot",
    56: "bind",
    57: "listen",
    58: "recv_zc",
}
_NAMES: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}

# Those that wait until one of several descriptors is ready, or for data of a socket.
WAITS: Final = frozenset(
    {
        *("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "splice", "poll", "ppoll", "select", "pselect6"),
        *("epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter", "accept", "accept4"),
    }
)


def call_name(number: int, machine: str) -> str:
    """Return the name of a system call on a machine of this type; unknown ones as ``system call 7``."""
    return _NAMES.get(machine, {}).get(number, f"system call {number}")


def request_name(opcode: int) -> str:
    """Return the name of a request of io_uring, such as ``uring send``; unknown ones as ``uring request 7``."""
    return f"uring {_REQUESTS.get(opcode, f'request {opcode}')}"
