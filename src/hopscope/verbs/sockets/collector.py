# SPDX-License-Identifier: Apache-2.0
"""Look at sockets again and again: what each did in between; see :class:`~hopscope.live.contract.Collector`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.kernel.capabilities import unseen_namespaces
from hopscope.kernel.sockets.change import baseline
from hopscope.kernel.sockets.filter import Autobound, parts
from hopscope.kernel.sockets.filter_parse import USUAL
from hopscope.kernel.sockets.namespaces import SocketReader
from hopscope.kernel.sockets.sock_diag import Request
from hopscope.kernel.sockets.table import Seen, has
from hopscope.live.labels import CgroupNames
from hopscope.term.format import plural
from hopscope.verbs.sockets.owners import SocketOwners
from hopscope.verbs.sockets.report import SocketReport, report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from hopscope.kernel.sockets.change import Baseline
    from hopscope.kernel.sockets.filter import Filter
    from hopscope.kernel.sockets.table import Sockets
    from hopscope.model.snapshot import PlanRow
    from hopscope.verbs.sockets.report import Kind


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """What is asked for.

    Attributes
    ----------
    protocols
        Keys of :data:`hopscope.kernel.sockets.table.PROTOCOLS`.
    filter
        Which sockets are shown.
    sort
        A key of :data:`hopscope.verbs.sockets.report.ORDERS`.
    namespaces
        Inodes; None: all.
    processes
        Find out whose each socket is.
    shown
        The filters as the user wrote them.
    """

    protocols: Sequence[int]
    filter: Filter
    sort: str = "trouble"
    namespaces: Sequence[int] | None = None
    processes: bool = True
    shown: Mapping[str, str] = field(default_factory=dict)


class SocketWatch:
    """Looks at sockets; one that ended between two looks is only counted.

    Parameters
    ----------
    options
        What is asked for.
    again
        Whether there will be a second look. Then all states are read: a socket whose state changed is not a new one.
    """

    def __init__(self, options: SocketOptions, *, again: bool = True) -> None:
        wanted = USUAL if options.filter.states is None else options.filter.states
        requests = [Request(protocol, USUAL | wanted if again else wanted) for protocol in options.protocols]
        self._options = options
        autobound = any(isinstance(part, Autobound) for part in parts(options.filter.condition))
        self._reader = SocketReader(requests, options.namespaces, autobound=autobound)
        self._owners = SocketOwners()
        self._cgroups = CgroupNames()

    def __enter__(self) -> Self:
        """Take the first look.

        Raises
        ------
        OSError, FormatError
            As :meth:`SocketReader.read`.
        """
        self._cpu_s, self._at_s = time.process_time(), time.monotonic()
        self._first_cpu_s, self._first_at_s = self._cpu_s, self._at_s
        self._now: Sockets | None = None
        self._first = self._before = baseline(self._reader.read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is left behind."""

    def plan(self) -> list[PlanRow]:
        """Nothing is attached."""
        return []

    def measure_cost(self, window_s: float) -> None:
        """Wait; what this process takes is counted anyway."""
        time.sleep(window_s)

    def snapshot(self) -> SocketReport:
        """Return the sockets as they are, with what they counted since each began."""
        return self._report("snapshot", self._reader.read(), None, None)

    def interval(self) -> SocketReport:
        """Return what the sockets did since the last call."""
        before, self._now = self._before, None  # two tables of very many sockets would take much memory
        self._now = self._reader.read()
        self._before = baseline(self._now)
        cpu_s, at_s = time.process_time(), time.monotonic()
        percent = 100 * (cpu_s - self._cpu_s) / (at_s - self._at_s)
        self._cpu_s, self._at_s = cpu_s, at_s
        return self._report("interval", self._now, before, percent)

    def total(self) -> SocketReport:
        """Return what the sockets there are did since the start, as of the last :meth:`interval`."""
        percent = 100 * (self._cpu_s - self._first_cpu_s) / max(self._at_s - self._first_at_s, 1e-9)
        return self._report("total", self._now or self._reader.read(), self._first, percent)

    def _report(self, kind: Kind, sockets: Sockets, before: Baseline | None, cpu_percent: float | None) -> SocketReport:
        options = self._options
        made = report(
            sockets,
            options.filter,
            before,
            options.sort,
            kind=kind,
            started_ns=(before.time_ns if before else sockets.time_ns) + wall_offset_ns(),
            duration_s=(sockets.time_ns - before.time_ns) / 1e9 if before else None,
            filters=options.shown,
            reader_cpu_percent=cpu_percent,
        )
        return self._named(made)

    def _named(self, made: SocketReport) -> SocketReport:
        cgroups = {number: self._cgroups.name(number) for number in made.values("cgroup_id") if number}
        owners = self._owners.of(made.values("inode")) if self._options.processes else {}
        return replace(made, cgroups=cgroups, owners=owners, notes=[*made.notes, *self._unknown(made)])

    def _unknown(self, made: SocketReport) -> list[str]:
        """Return sentences on what is missing for want of rights."""
        rows = made.sockets.rows
        found = []
        if len(rows) and not has(rows, Seen.MARK).any():
            found.append("Marks and upper layer protocols (TLS, MPTCP) are only shown with CAP_NET_ADMIN")
        if self._owners.unreadable:
            found.append(
                f"{plural(self._owners.unreadable, 'process', 'processes')} could not be inspected, which takes "
                "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: sockets shown without a process may belong to them"
            )
        return [*found, *filter(None, [unseen_namespaces()])]
