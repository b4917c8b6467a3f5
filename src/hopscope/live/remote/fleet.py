# SPDX-License-Identifier: Apache-2.0
"""The live collectors of several hosts as one, looked at together; who is late or gone holds up nobody."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from hopscope.live.remote.own import flows_of
from hopscope.model.hosts import HostsSnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from hopscope.live.remote.client import RemoteCollector
    from hopscope.model.snapshot import Kind, PlanRow

SnapshotT = TypeVar("SnapshotT")

# How long an answer may take, beyond what it takes to measure the cost, before nobody waits for that host.
_LATE_S: Final = 1.0
_TOTAL_S: Final = 5.0


class Fleet(Generic[SnapshotT]):
    """Collectors of hosts; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    hosts
        In the order in which they are shown.
    """

    def __init__(self, hosts: Sequence[RemoteCollector[SnapshotT]]) -> None:
        self.hosts = hosts
        self._window_s = 0.0
        self._own: list[list[Any]] = []

    def __enter__(self) -> Self:
        """Have all attach at the same time, and wait until they have."""
        self._leave_out()
        with contextlib.ExitStack() as stack:
            for host in self.hosts:
                stack.callback(host.close)
                host.open()
            for host in self.hosts:
                host.start()
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Detach."""
        self._opened.close()

    def plan(self) -> list[PlanRow]:
        """Return nothing: each host has its own."""
        return []

    def measure_cost(self, window_s: float) -> None:
        """Ask all for a look, after they have measured their cost; does not wait."""
        self._window_s = window_s
        self._leave_out()
        for host in self.hosts:
            host.ask("interval", window_s)

    def interval(self) -> HostsSnapshot[SnapshotT]:
        """Return what they saw since the last call, as far as they have answered."""
        return self._looked("interval", self._window_s + _LATE_S)

    def total(self) -> HostsSnapshot[SnapshotT]:
        """Return what they saw since the start."""
        for host in self.hosts:
            host.ask("total")
        return self._looked("total", _TOTAL_S)

    def _leave_out(self) -> None:
        """Tell all hosts of our connections, any of which may cross any of them, when there are others than before."""
        own = flows_of(host.connection for host in self.hosts)
        if own != self._own:
            self._own = own
            for host in self.hosts:
                host.leave_out(own)

    def _looked(self, kind: Kind, most_s: float) -> HostsSnapshot[SnapshotT]:
        until_s = time.monotonic() + most_s
        for host in self.hosts:
            host.wait(until_s, for_late=kind == "total")
        return HostsSnapshot(
            kind, time.time_ns(), [host.interval() if kind == "interval" else host.total() for host in self.hosts]
        )
