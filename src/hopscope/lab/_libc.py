# SPDX-License-Identifier: Apache-2.0
"""The few C library calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNET = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def unshare_net() -> None:
    """Move the calling thread into a new network namespace.

    Raises
    ------
    OSError
        EPERM without CAP_SYS_ADMIN, ENOSPC when user.max_net_namespaces is reached.
    """
    _check(libc.unshare(CLONE_NEWNET))


def setns_net(fd: int) -> None:
    """Move the calling thread into the network namespace that `fd` refers to.

    Raises
    ------
    OSError
        EPERM without CAP_SYS_ADMIN, EINVAL when `fd` is not a network namespace.
    """
    _check(libc.setns(fd, CLONE_NEWNET))


def _check(result: int) -> None:
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
