# SPDX-License-Identifier: Apache-2.0
"""Listeners whose process has no file descriptor left, so that accept() fails with EMFILE."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.kernel.counters.text import read
from hopscope.kernel.netlink import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.kernel.counters.text import Said

_LIMIT: Final = re.compile(rb"^Max open files +([0-9]+) +([0-9]+) ", re.MULTILINE)
# Processes that have less of their limit in use are not looked into.
_PART: Final = 0.9


class _Open(NamedTuple):
    """A process that is close to its limit: how many descriptors it has open, and the two limits."""

    pid: int
    descriptors: int
    limit: int
    hard_limit: int


def of_listeners(listeners: Mapping[int, str]) -> Iterator[Said]:
    """Yield descriptors and their limit (RLIMIT_NOFILE) of processes that have a listener and at most a tenth left.

    Parameters
    ----------
    listeners
        Subject of each listener by the inode of its socket.
    """
    if not listeners:
        return
    for process in _close_to_limit():
        for subject in sorted({listeners[inode] for inode in _sockets(process.pid) if inode in listeners}):
            yield subject, "descriptors", process.descriptors
            yield subject, "descriptor_limit", process.limit
            yield subject, "descriptor_hard_limit", process.hard_limit
            yield subject, "pid", str(process.pid)
            yield subject, "comm", _comm(process.pid)
            listeners = {inode: name for inode, name in listeners.items() if name != subject}


def _close_to_limit() -> Iterator[_Open]:
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208 # for speed
        try:
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
            found = _LIMIT.search(read(f"/proc/{pid}/limits"))
        except OSError:
            continue  # it has ended, or is closed to us
        if found and descriptors >= _PART * int(found[1]):
            yield _Open(pid, descriptors, int(found[1]), int(found[2]))


def _sockets(pid: int) -> Iterator[int]:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            if target.startswith("socket:["):
                yield int(target[8:-1])
    except OSError:
        return  # it has ended


def _comm(pid: int) -> str:
    try:
        return printable(read(f"/proc/{pid}/comm").rstrip(b"\n"))
    except OSError:
        return ""
