# SPDX-License-Identifier: Apache-2.0
"""A process that reads a recording gives up what it does not need for that.

Where the kernel has Landlock (Linux 5.13), it can change nothing but temporary files from then on. A filter of system
calls (:mod:`hopscope.recorded.syscalls`), which does not need Landlock, leaves it no sockets and no other programs.
Files can still be read: modules are imported when they are needed. The engine restricts queries on its own
(:mod:`hopscope.store.engine`); this holds also where a recording exploits a mistake in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import struct
from typing import TYPE_CHECKING, Final

import click

from hopscope.recorded import syscalls

if TYPE_CHECKING:
    from ctypes import CDLL

# include/uapi/linux/landlock.h; the system calls have these numbers on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_MAKE_AND_REMOVE: Final = 0b1_1111_1111 << 4
# By the version that brought it: to link and rename across folders, and to truncate.
_LATER: Final = {2: 1 << 13, 3: 1 << 14}
_BIND_AND_CONNECT_TCP: Final = 0b11
_TCP_VERSION: Final = 4
_RULESET: Final = struct.Struct("=QQ")
_RULE: Final = struct.Struct("=Qi")
_PR_SET_NO_NEW_PRIVS: Final = 38
_DEVICES: Final = "/dev"
# How often this process was to be confined.
_times: Final = itertools.count()


class OwnProcess:
    """Click's object of a command line that has its own process; a program that imports hopscope has none."""


def is_own_process() -> bool:
    """Tell whether the command that runs has a process of its own."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_object(OwnProcess))


def confine(writable: tuple[str, ...] = ()) -> None:
    """Confine the calling thread, and those that it starts later, as far as this kernel can; again changes nothing.

    Parameters
    ----------
    writable
        Of the first call: folders in which files can be changed and made all the same.
    """
    import ctypes  # noqa: PLC0415 # `--help` is quick without

    if next(_times):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the more, the more threads can read
    _restrict_files(libc, writable)
    syscalls.install(libc)


def _restrict_files(libc: CDLL, writable: tuple[str, ...]) -> None:
    import tempfile  # noqa: PLC0415 # as above

    version = libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return
    changes = _WRITE_FILE | _MAKE_AND_REMOVE
    changes |= sum(right for since, right in _LATER.items() if version >= since)
    tcp = _BIND_AND_CONNECT_TCP if version >= _TCP_VERSION else 0
    ruleset = _RULESET.pack(_EXECUTE | changes, tcp)
    # Before TCP could be restricted, the struct had one field.
    ruleset_fd = libc.syscall(_CREATE_RULESET, ruleset, len(ruleset) if tcp else len(ruleset) // 2, 0)
    if ruleset_fd < 0:
        return
    try:
        changed = [*writable]
        with contextlib.suppress(FileNotFoundError):  # all disks may be full
            changed.append(tempfile.gettempdir())
        for folder, rights in (*((each, changes) for each in changed), (_DEVICES, _WRITE_FILE)):
            with contextlib.suppress(OSError):
                _allow(libc, ruleset_fd, folder, rights)
        libc.syscall(_RESTRICT_SELF, ruleset_fd, 0)
    finally:
        os.close(ruleset_fd)


def _allow(libc: CDLL, ruleset_fd: int, folder: str, rights: int) -> None:
    folder_fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        libc.syscall(_ADD_RULE, ruleset_fd, _PATH_BENEATH, _RULE.pack(rights, folder_fd), 0)
    finally:
        os.close(folder_fd)
