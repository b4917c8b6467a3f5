# SPDX-License-Identifier: Apache-2.0
"""What a process gives up for good: its user, its capabilities, and the right to get new ones."""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
from typing import Final

from hopscope.errors import KernelError
from hopscope.kernel.capabilities import require_held
from hopscope.store.folder import sudo_user

_NOBODY: Final = 65534
# To make a process that of another user, and to end it.
_OTHER_USER: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 4, 38, 24, 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
# capset(2): version 3, this thread; three masks in two halves.
_HEADER: Final = struct.pack("=Ii", 0x2008_0522, 0)
_NONE: Final = bytes(24)


def unprivileged_user() -> tuple[int, int]:
    """Return user and group without rights: ourselves, or, for root, who called sudo, else nobody.

    Raises
    ------
    PrivilegeError
        We are root, and may not become another user, or not end what belongs to one.
    """
    if os.geteuid():
        return os.geteuid(), os.getegid()
    require_held(_OTHER_USER, "Giving the server a user without rights")
    if (found := sudo_user()) and found.uid:
        return found.uid, found.gid
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return _NOBODY, _NOBODY
    return nobody.pw_uid, nobody.pw_gid


def owner_of(path: str) -> tuple[int, int]:
    """Return user and group that may read what is at a path: its owner where we are root, else ourselves."""
    found = os.stat(path)  # noqa: PTH116 # the owner alone
    return (os.geteuid(), os.getegid()) if os.geteuid() else (found.st_uid, found.st_gid)


def give_up(uid: int, gid: int) -> None:
    """Become this user, without any capability or other group, and without a way back; nobody can trace it.

    To be called while the process has one thread: capabilities belong to threads.

    Raises
    ------
    KernelError
        It could not be; the process must not go on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        for number in range(64):  # EINVAL from the first that this kernel does not have
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # kernels before 4.3 have none
    if (
        libc.capset(_HEADER, _NONE)
        or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        or libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    ):
        raise KernelError(
            f"The server cannot give up its rights: {os.strerror(ctypes.get_errno())}",
            "Look at a recording with `hopscope web`, as a user without rights",
        )
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise KernelError("The server cannot change its user", "Look at a recording with `hopscope web`, as that user")
