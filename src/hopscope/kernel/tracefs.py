# SPDX-License-Identifier: Apache-2.0
"""The kernel's tracepoints, as tracefs lists them; read only, whether it is mounted or not.

Where it is not mounted it is opened without a place to be seen at (fsmount(2), Linux 5.2): nothing is left behind,
however this process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hopscope.errors import KernelError, PrivilegeError
from hopscope.kernel.host import how_to_get, read_mounts
from hopscope.libbpf.capabilities import held_capabilities

if TYPE_CHECKING:
    from types import TracebackType

# Since 5.2; the same on every architecture but alpha.
_NR_FSOPEN: Final = 430
_NR_FSCONFIG: Final = 431
_NR_FSMOUNT: Final = 432
# include/uapi/linux/mount.h
_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6

_libc = ctypes.CDLL(None, use_errno=True)


class Tracefs:
    """An open tracefs; a context manager.

    Raises
    ------
    PrivilegeError
        It may not be read.
    KernelError
        This kernel has none, or cannot open it without mounting it.
    """

    def __init__(self) -> None:
        try:
            self._root = _open_root()
        except OSError as error:
            raise _refused(error.errno or 0) from error
        self._events = Path(f"/proc/self/fd/{self._root}/events")
        if not os.access(self._events, os.R_OK | os.X_OK, effective_ids=True):  # it may have been given a group
            self.close()
            raise _refused(errno.EACCES)

    def matching(self, subsystem: str, event: str) -> list[tuple[str, str]]:
        """Return subsystem and name of each event that matches; both may be patterns of the shell.

        Without those that only ftrace's own tracers write, which nobody else can have.
        """
        return [
            (folder.name, path.name)
            for folder in sorted(self._events.iterdir())
            if fnmatchcase(folder.name, subsystem) and folder.is_dir()
            for path in sorted(folder.iterdir())
            if fnmatchcase(path.name, event) and (path / "enable").exists()
        ]

    def number(self, subsystem: str, event: str) -> int:
        """Return an event's number, which perf_event_open(2) takes."""
        return int((self._events / subsystem / event / "id").read_text())

    def format(self, subsystem: str, event: str) -> str:
        """Return the text that describes an event's fields."""
        return (self._events / subsystem / event / "format").read_text()

    def close(self) -> None:
        """Close it."""
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _open_root() -> int:
    """Return a file descriptor of tracefs's root: where it is mounted, or of a mount that is nowhere.

    To mount it once more would set its options back on kernels before 6.9, so what is there comes first.
    """
    for mount in read_mounts():
        if mount.kind == "tracefs" and mount.root == "/":
            with contextlib.suppress(OSError):
                return os.open(Path(mount.point), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    context = _called(_NR_FSOPEN, b"tracefs", _CLOEXEC)
    try:
        _called(_NR_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _called(_NR_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _called(number: int, *arguments: int | bytes | None) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _refused(code: int) -> KernelError | PrivilegeError:
    if code in {errno.EPERM, errno.EACCES}:
        lacking = [name for name in ("CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH") if name not in held_capabilities()]
        return PrivilegeError(
            f"tracefs, which lists the kernel's tracepoints, cannot be read (missing: {', '.join(lacking)})",
            how_to_get(lacking, os.geteuid()),
        )
    if code == errno.ENODEV:
        return KernelError("This kernel has no tracefs", "Boot one that was built with CONFIG_TRACING=y")
    if code == errno.ENOSYS:
        return KernelError(
            "tracefs is not mounted, and this kernel cannot open it without that (Linux 5.2 can)",
            "Mount it: mount -t tracefs tracefs /sys/kernel/tracing",
        )
    return KernelError(f"tracefs cannot be opened: {os.strerror(code)}")
