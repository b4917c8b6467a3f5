# SPDX-License-Identifier: Apache-2.0
"""How results of several hosts are printed: each host's as the verb prints its own, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hopscope.live.interval import Reports
from hopscope.model.hosts import HostsSnapshot
from hopscope.term.hosts import absence_lines, absence_text, absences_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.live.remote.codec import Codec
    from hopscope.live.remote.fleet import Fleet
    from hopscope.model.hosts import HostReport
    from hopscope.model.snapshot import PlanRow

SnapshotT = TypeVar("SnapshotT")


@dataclass
class HostsOutput(Reports[HostsSnapshot[SnapshotT]], Generic[SnapshotT]):
    """How results of several hosts are printed.

    Attributes
    ----------
    fleet
        The hosts' collectors.
    codec
        How their snapshots become one.
    outputs
        Host → how the verb prints its results.
    apart
        How it prints those of all hosts in one table, a group of rows a host; None: each host has a table of its own.
    added
        How it prints their sum, at the end.
    incomplete
        A host was missing for a while, as was seen at the end.
    """

    between_s: ClassVar[float | None] = 0.1

    fleet: Fleet[SnapshotT] = field(kw_only=True)
    codec: Codec[SnapshotT] = field(kw_only=True)
    outputs: Mapping[str, Reports[SnapshotT]] = field(kw_only=True)
    apart: Reports[SnapshotT] | None = field(kw_only=True)
    added: Reports[SnapshotT] = field(kw_only=True)
    incomplete: bool = field(default=False, init=False)
    _reports: int = field(default=0, init=False)
    # Hosts of which an interval was shown: who was late in the only one has nothing but its total.
    _shown: set[str] = field(default_factory=set, init=False)

    def between(self) -> None:
        """Print what cannot wait."""
        for output in self.outputs.values():
            output.between()

    def rest(self) -> None:
        """Print what is left here."""
        for output in self.outputs.values():
            output.rest()

    def plan(self, rows: Sequence[PlanRow]) -> None:
        """Show how each host's probe points were attached, if that was asked for."""
        del rows
        for host in self.fleet.hosts:
            self.outputs[host.name].plan(host.plan())

    def show(self, snapshot: HostsSnapshot[SnapshotT]) -> None:
        """Print what each host found and who was missing; at the end, their sum."""
        last = snapshot.kind == "total"
        self._reports += not last
        self.incomplete = last and any(report.absences for report in snapshot.hosts)
        found = snapshot.found()
        late = found.keys() - self._shown
        if self.apart and found and (not last or late or self.apart.wants_total(self._reports)):
            self.apart.show(self.codec.apart(found))
        for report in snapshot.hosts:
            self._show_host(report, snapshot)
        self._shown |= found.keys()
        if last and found and len(snapshot.hosts) > 1:
            self.added.show(_with_missing(self.codec.added(found), snapshot))

    def finish(self, total: HostsSnapshot[SnapshotT]) -> None:
        """Show or write what there is once, with the hosts told apart."""
        if found := total.found():
            self.added.finish(self.codec.apart(found))

    def wants_total(self, reports: int) -> bool:
        """As the verb's own output; several hosts have a sum."""
        return len(self.outputs) > 1 or self.added.wants_total(reports)

    def _show_host(self, report: HostReport[SnapshotT], snapshot: HostsSnapshot[SnapshotT]) -> None:
        output = self.outputs[report.host]
        wanted = report.host not in self._shown or snapshot.kind == "interval" or output.wants_total(self._reports)
        if report.snapshot is not None and self.apart is None and wanted:
            output.show(report.snapshot)
        if report.absences and self.style == "json":
            self._print_json(absences_to_json(report.host, snapshot.kind, report.absences))
        elif report.absences:
            self._print("\n".join(absence_lines(report.host, report.absences, snapshot.at_ns, self._terminal())))


def _with_missing(added: Any, snapshot: HostsSnapshot[Any]) -> Any:  # noqa: ANN401 # any of the snapshots
    """Return the hosts' sum with notes on what is not in it."""
    missing = [
        f"not in it: {report.host} {absence_text(absence, snapshot.at_ns)}"
        for report in snapshot.hosts
        for absence in report.absences
    ]
    return replace(added, notes=[*added.notes, *missing])
