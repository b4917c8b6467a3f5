# SPDX-License-Identifier: Apache-2.0
"""Entering a network namespace: ``os.setns``, which Python has only since 3.12."""

from __future__ import annotations

import ctypes
import os
from typing import Final

CLONE_NEWNET: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def setns_net(fd: int) -> None:
    """Move the calling thread into the network namespace that `fd` refers to.

    Raises
    ------
    OSError
        EPERM without CAP_SYS_ADMIN, EINVAL when `fd` is not a network namespace.
    """
    if _libc.setns(fd, CLONE_NEWNET) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
