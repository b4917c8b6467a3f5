# SPDX-License-Identifier: Apache-2.0
"""The few C library calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os

from hopscope.setns import CLONE_NEWNET

libc = ctypes.CDLL(None, use_errno=True)


class Iovec(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


class Msghdr(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Mmsghdr(ctypes.Structure):
    """``struct mmsghdr``."""

    # Nested as in C: the padding at the end of msghdr comes before len.
    _fields_ = (("hdr", Msghdr), ("len", ctypes.c_uint))


def unshare_net() -> None:
    """Move the calling thread into a new network namespace.

    Raises
    ------
    OSError
        EPERM without CAP_SYS_ADMIN, ENOSPC when user.max_net_namespaces is reached.
    """
    if libc.unshare(CLONE_NEWNET) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
