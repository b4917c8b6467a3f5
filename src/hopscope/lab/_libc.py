# SPDX-License-Identifier: Apache-2.0
"""The few C library calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os

from hopscope.setns import CLONE_NEWNET

libc = ctypes.CDLL(None, use_errno=True)


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
