# SPDX-License-Identifier: Apache-2.0
"""Which processes have a socket open, by its inode: what ``ss -p`` finds in /proc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hopscope.verbs.sockets.report import Owner

if TYPE_CHECKING:
    from collections.abc import Collection

_PREFIX: Final = "socket:["


class SocketOwners:
    """Finds owners; what it has found is looked up again only where there are sockets that it does not know."""

    def __init__(self) -> None:
        self._owners: dict[int, list[Owner]] = {}
        self.unreadable = 0

    def of(self, inodes: Collection[int]) -> dict[int, list[Owner]]:
        """Return the owners of sockets that have any; those of a process that is closed to us are not known."""
        wanted = {inode for inode in inodes if inode}
        if not wanted <= self._owners.keys():
            self._owners, self.unreadable = find_owners()
            # The next call need not look for those that nobody has.
            self._owners |= {inode: [] for inode in wanted - self._owners.keys()}
        return {inode: owners for inode in wanted if (owners := self._owners[inode])}


def find_owners() -> tuple[dict[int, list[Owner]], int]:
    """Return the owners of all sockets, by inode, and how many processes could not be looked into."""
    owners: dict[int, list[Owner]] = {}
    unreadable = 0
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208 # for speed, as all here
        try:
            found = _sockets(pid)
        except PermissionError:
            unreadable += 1
            continue
        except OSError:
            continue  # it ended meanwhile
        if found:
            comm = _comm(pid)
            for inode, fd in found:
                owners.setdefault(inode, []).append(Owner(pid, comm, fd))
    return owners, unreadable


def _sockets(pid: int) -> list[tuple[int, int]]:
    """Return inode and descriptor of the sockets of a process."""
    found = []
    folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            try:
                target = os.readlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue  # closed meanwhile
            if target.startswith(_PREFIX):
                found.append((int(target[len(_PREFIX) : -1]), int(name)))
    finally:
        os.close(folder)
    return found


def _comm(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123
            return file.read().rstrip(b"\n").decode(errors="replace")
    except OSError:
        return ""
