# SPDX-License-Identifier: Apache-2.0
"""The sockets of all network namespaces, read at one go."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hopscope.errors import FormatError
from hopscope.kernel import netns
from hopscope.kernel.sockets.address import ports
from hopscope.kernel.sockets.sock_diag import AUTOBOUND, Arena, SockDiag
from hopscope.kernel.sockets.table import Growing, Sockets, Unread, cookies

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.netns import Namespace
    from hopscope.kernel.sockets.sock_diag import Request
    from hopscope.kernel.sockets.table import Rows


class SocketReader:
    """Reads sockets again and again, into memory that it keeps.

    Parameters
    ----------
    requests
        What to ask for in each namespace.
    namespaces
        Inodes of those to read; None: all there are, also those that come later.
    autobound
        Also find out whose port the kernel chose, which takes a second look: only the kernel's own filter knows.
    """

    def __init__(
        self, requests: Sequence[Request], namespaces: Collection[int] | None = None, *, autobound: bool = False
    ) -> None:
        self._requests = list(requests)
        self._autobound = [request._replace(extensions=0, bytecode=AUTOBOUND) for request in requests if autobound]
        self._namespaces = None if namespaces is None else set(namespaces)
        self._arena = Arena()

    def read(self) -> Sockets:
        """Return the sockets there are now; a namespace that goes away meanwhile has none.

        Raises
        ------
        OSError
            Only one namespace was asked for, or there is only one, and it cannot be read.
        FormatError
            The same, and its answer cannot be decoded.
        """
        time_ns = time.monotonic_ns()
        found = [
            each for inode, each in netns.namespaces().items() if self._namespaces is None or inode in self._namespaces
        ]
        done = _Visited()
        for each in found:
            begin = len(done.rows)
            try:
                self._visit(each, done)
            except FileNotFoundError:
                continue  # it went away between the look and the step inside
            except (OSError, FormatError) as error:
                if len(found) == 1:
                    raise
                done.rows.cut(begin)
                done.unread.append(Unread(each.inode, _why(error)))
        until_ns = time.monotonic_ns()
        rows = done.rows.taken()
        once = _without_repetitions(rows)
        return Sockets(
            rows=once,
            time_ns=time_ns,
            until_ns=until_ns,
            tcp_info_bytes=done.tcp_info_bytes,
            twice=len(rows) - len(once),
            interrupted=done.interrupted,
            namespaces={each.inode: each.name for each in found},
            devices=_devices(once, found),
            unread=done.unread,
        )

    def _visit(self, namespace: Namespace, done: _Visited) -> None:
        diag = netns.inside(namespace, SockDiag)
        try:
            automatic = self._automatic(namespace, diag) if self._autobound else None
            for part in diag.dump(self._requests, self._arena):
                part.rows["netns"] = namespace.inode
                if automatic:
                    part.rows["autobound"] = automatic(part.rows)
                done.rows.append(part.rows)
                done.interrupted += part.interrupted
                done.tcp_info_bytes = max(done.tcp_info_bytes, part.tcp_info_bytes)
        finally:
            diag.close()  # or it would keep the namespace

    def _automatic(self, namespace: Namespace, diag: SockDiag) -> Callable[[Rows], NDArray[np.bool_]]:
        """Return what tells of rows whose port the kernel chose."""
        chosen = np.concatenate(
            [np.zeros(0, np.uint64), *(cookies(part.rows) for part in diag.dump(self._autobound, self._arena))]
        )
        # The kernel also takes accepted connections for such: their port was bound by the listener.
        first, last = netns.inside(namespace, _automatic_ports)

        def tell(rows: Rows) -> NDArray[np.bool_]:
            port = ports(rows, "local")
            return np.isin(cookies(rows), chosen) & (port >= first) & (port <= last)

        return tell


@dataclass
class _Visited:
    # What the namespaces had so far.
    rows: Growing = field(default_factory=Growing)
    interrupted: int = 0
    tcp_info_bytes: int = 0
    unread: list[Unread] = field(default_factory=list)


def _without_repetitions(rows: Rows) -> Rows:
    """Leave out all but the last of the rows of one socket, as when it moved while the kernel walked its table."""
    numbers = cookies(rows)
    order = np.argsort(numbers, kind="stable")
    before, behind = order[:-1], order[1:]
    repeated = (numbers[before] == numbers[behind]) & (rows["netns"][before] == rows["netns"][behind])
    return np.delete(rows, before[repeated]) if repeated.any() else rows


def device_names(namespace: Namespace) -> dict[int, str]:
    """Return the names of a namespace's interfaces by index; none if it is gone or closed to us."""
    with contextlib.suppress(OSError):
        return dict(netns.inside(namespace, socket.if_nameindex))
    return {}


def _devices(rows: Rows, namespaces: Iterable[Namespace]) -> dict[tuple[int, int], str]:
    """Return the names of the interfaces that sockets are bound to."""
    bound = set(np.unique(rows["netns"][rows["message"]["ifindex"] != 0]).tolist())
    return {
        (each.inode, index): name
        for each in namespaces
        if each.inode in bound
        for index, name in device_names(each).items()
    }


def _automatic_ports() -> tuple[int, int]:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(first), int(last)


def _why(error: OSError | FormatError) -> str:
    if isinstance(error, FormatError):
        return error.what
    if error.errno in {errno.EPERM, errno.EACCES}:
        return "entering it takes CAP_SYS_ADMIN"
    return os.strerror(error.errno or 0)
