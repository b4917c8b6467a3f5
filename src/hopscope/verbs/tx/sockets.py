# SPDX-License-Identifier: Apache-2.0
"""The TCP sockets that exist when ``tx`` starts: switched on, and at the end off again.

Whether the kernel calls back for a socket is one flag of the socket, which all runs share. The last run to end clears
it everywhere; who is the last is told by a lock on the root of the cgroup hierarchy, which dies with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.kernel import netns
from hopscope.probes.attach import cgroup_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.libbpf import BpfObject
    from hopscope.live.filters import Selection


class Sockets:
    """Switches sockets on in every network namespace.

    Parameters
    ----------
    bpf
        The loaded object.

    Raises
    ------
    KernelError
        cgroup version 2 is not mounted.
    """

    def __init__(self, bpf: BpfObject) -> None:
        self._bpf = bpf
        self._lock = os.open(cgroup_root(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def switch_on(self, selection: Selection) -> None:
        """Switch on those that are wanted."""
        if selection.pids or selection.comms:
            for inode in set(socket_inodes(set(selection.pids), set(selection.comms))):
                self._bpf.maps["inodes"].update(inode.to_bytes(8, "little"), b"\1")
        self._walk("tx_switch_on")

    def close(self) -> None:
        """Switch them off, unless another run is there, which will."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._walk("tx_switch_off")
        except BlockingIOError:
            pass
        finally:
            os.close(self._lock)

    def _walk(self, program: str) -> None:
        walk = self._bpf.programs[program].iterate
        for each in netns.namespaces().values():
            # It may have gone away between the look and the step inside; or it is closed to us.
            with contextlib.suppress(OSError):
                netns.inside(each, walk)


def socket_inodes(pids: set[int], comms: set[str]) -> Iterator[int]:
    """Yield the inodes of the sockets that processes have open: those of these pids and names."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (pids and int(entry.name) not in pids) or (comms and (entry / "comm").read_text().strip() not in comms):
                continue
            for fd in (entry / "fd").iterdir():
                target = str(fd.readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])
