# SPDX-License-Identifier: Apache-2.0
"""What several hosts found, and when one of them was not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.snapshot import Kind

SnapshotT = TypeVar("SnapshotT")


@dataclass(frozen=True, slots=True)
class Absence:
    """A time of which nothing is known of a host.

    Attributes
    ----------
    from_ns, until_ns
        CLOCK_REALTIME of the host that asks; `until_ns` is None while it lasts.
    reason
        A sentence without a full stop.
    """

    from_ns: int
    until_ns: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class HostReport(Generic[SnapshotT]):
    """What one host found in an interval or in the run.

    Attributes
    ----------
    host
        Its name.
    snapshot
        None where nothing came.
    absences
        Of an interval: the one that lasts. Of the run: all.
    """

    host: str
    snapshot: SnapshotT | None
    absences: Sequence[Absence] = ()


@dataclass(frozen=True, slots=True)
class HostsSnapshot(Generic[SnapshotT]):
    """What several hosts found, in the order in which they were named."""

    kind: Kind
    at_ns: int
    hosts: Sequence[HostReport[SnapshotT]]

    def found(self) -> dict[str, SnapshotT]:
        """Return host → its snapshot, of those that there are."""
        return {report.host: report.snapshot for report in self.hosts if report.snapshot is not None}
