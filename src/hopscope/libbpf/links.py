# SPDX-License-Identifier: Apache-2.0
"""Links: a program that is attached, for as long as a file descriptor is open."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Self

from hopscope.libbpf._abi import BpfLinkInfo
from hopscope.libbpf._library import lib
from hopscope.libbpf._numbers import numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Link:
    """An attachment. It ends with :meth:`close`, with its object, or with the process; it is never pinned.

    Parameters
    ----------
    fd
        The link's file descriptor, or on kernels before 5.15 a perf event's.
    detach
        What ends it, and closes `fd`.
    """

    def __init__(self, fd: int, detach: Callable[[], object]) -> None:
        self._fd = fd
        self._detach = detach
        self._id = _link_id(fd)

    @property
    def fd(self) -> int:
        """The file descriptor, -1 once closed."""
        return self._fd

    @property
    def id(self) -> int | None:
        """The kernel's number, as ``bpftool link`` shows it; None where the kernel attached without a link."""
        return self._id

    def close(self) -> None:
        """Detach; again is allowed."""
        if self._fd < 0:
            return
        self._fd = -1
        self._detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def link_ids() -> tuple[int, ...] | None:
    """Return the numbers of all links that this kernel holds, in order; None where it does not tell.

    It tells who has CAP_SYS_ADMIN.
    """
    return numbers(lib().bpf_link_get_next_id)


def _link_id(fd: int) -> int | None:
    info = BpfLinkInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    failed = lib().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size))
    return None if failed else int(info.id)
