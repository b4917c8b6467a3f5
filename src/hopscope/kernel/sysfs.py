# SPDX-License-Identifier: Apache-2.0
"""The sysfs of any network namespace, without a trace in the file system.

``/sys/class/net`` shows the namespace in which it was mounted. A sysfs for another one can be made that is mounted
nowhere: it is reached by its descriptor alone, and is gone with it, however the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# include/uapi/asm-generic/unistd.h, the same for all architectures; Linux 5.2
_FSOPEN: Final = 430
_FSCONFIG: Final = 431
_FSMOUNT: Final = 432
# include/uapi/linux/mount.h
_FSOPEN_CLOEXEC: Final = 1
_FSMOUNT_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_READ_ONLY: Final = 0x1 | 0x2 | 0x4 | 0x8  # MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def sysfs() -> Iterator[int]:
    """Lend a descriptor of the root of a sysfs of the calling thread's network namespace.

    Raises
    ------
    OSError
        EPERM without CAP_SYS_ADMIN.
    """
    context = _call(_FSOPEN, b"sysfs", _FSOPEN_CLOEXEC)
    try:
        _call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        root = _call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, _READ_ONLY)
    finally:
        os.close(context)
    try:
        yield root
    finally:
        os.close(root)


def _call(number: int, *arguments: bytes | int | None) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "sysfs of its network namespace")
    return result
