# SPDX-License-Identifier: Apache-2.0
"""The filter of system calls (seccomp) of a process that reads a recording or talks to strangers.

It makes no sockets, connects and binds none, runs no other program, and has nothing to do with other processes,
namespaces, mounts, keys, BPF, io_uring and kernel modules, and types nothing into its terminal. What it has open stays
usable: it can accept connections.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctypes import CDLL

# Of each machine type, its AUDIT_ARCH (include/uapi/linux/audit.h) and the numbers of these system calls.
ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
# fmt: off
_SAME: Final = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442,
}
NUMBERS: Final = {
    "x86_64": _SAME | {
        "ioctl": 16, "socket": 41, "connect": 42, "bind": 49, "socketpair": 53, "clone": 56, "execve": 59,
        "ptrace": 101, "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "init_module": 175,
        "delete_module": 176, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313,
        "seccomp": 317, "kexec_file_load": 320, "bpf": 321, "execveat": 322, "userfaultfd": 323,
    },
    "aarch64": _SAME | {
        "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "ptrace": 117, "socket": 198, "socketpair": 199, "bind": 200,
        "connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221,
        "perf_event_open": 241, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273,
        "seccomp": 277, "bpf": 280, "execveat": 281, "userfaultfd": 282, "kexec_file_load": 294,
    },
}
# fmt: on
# `seccomp` installs the filter, and may add others, which only refuse more; the others are refused in part.
_IN_PART: Final = {"seccomp", "clone", "clone3", "socketpair", "ioctl"}
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES: Final = 0x7E02_0000
_SOCKET_TYPE: Final = 0xF
# TIOCSTI types into the terminal, TIOCLINUX pastes: what comes next runs it.
_TYPING: Final = (0x5412, 0x541C)
# x32, whose numbers begin here, has the same AUDIT_ARCH as x86-64.
_X32: Final = 0x4000_0000

# Of include/uapi/linux/bpf_common.h and seccomp.h; what is loaded is a word of struct seccomp_data.
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_REFUSE: Final = _ERROR | errno.EPERM
_INSTRUCTION: Final = struct.Struct("=HBBI")
_SET_MODE_FILTER: Final = 1
# For all threads, and without turning off speculation in them: none of them runs what it has read.
_TSYNC_AND_SPEC_ALLOW: Final = 1 | 4


def install(libc: CDLL) -> None:
    """Refuse these system calls with EPERM from now on, in all threads, which have PR_SET_NO_NEW_PRIVS.

    A kernel without filters, or a machine of another type, refuses none.
    """
    import ctypes  # noqa: PLC0415 # `--help` is quick without

    machine = os.uname().machine
    if machine not in NUMBERS:
        return
    code = program(machine)
    kept = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog
    filter_ = struct.pack("@HP", len(code) // _INSTRUCTION.size, ctypes.addressof(kept))
    libc.syscall(NUMBERS[machine]["seccomp"], _SET_MODE_FILTER, _TSYNC_AND_SPEC_ALLOW, filter_)


def program(machine: str) -> bytes:
    """Return the filter in classic BPF, for a type of machine."""
    numbers = NUMBERS[machine]
    refused = [number for name, number in numbers.items() if name not in _IN_PART]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *_unless(ARCHITECTURES[machine], _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        *_if(_AT_LEAST, _X32, _REFUSE),
        *(line for number in refused for line in _if(_EQUAL, number, _REFUSE)),
        # Its flags are in memory, where a filter cannot look; without it, threads are started by clone().
        *_if(_EQUAL, numbers["clone3"], _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 4, numbers["clone"]),
        (_LOAD, 0, 0, _FIRST),
        *_if(_ANY_BIT, _NEW_NAMESPACES, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 6, numbers["ioctl"]),
        (_LOAD, 0, 0, _SECOND),
        *(line for request in _TYPING for line in _if(_EQUAL, request, _REFUSE)),
        (_RETURN, 0, 0, _ALLOW),
        # One of datagrams can send to any address. All that is left ends at the last line.
        (_EQUAL, 0, 4, numbers["socketpair"]),
        (_LOAD, 0, 0, _SECOND),
        (_AND, 0, 0, _SOCKET_TYPE),
        *_unless(socket.SOCK_STREAM, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(_INSTRUCTION.pack(*each) for each in code)


def _if(test: int, value: int, outcome: int) -> list[tuple[int, int, int, int]]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, outcome)]


def _unless(value: int, outcome: int) -> list[tuple[int, int, int, int]]:
    return [(_EQUAL, 1, 0, value), (_RETURN, 0, 0, outcome)]
