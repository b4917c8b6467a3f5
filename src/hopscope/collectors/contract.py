# SPDX-License-Identifier: Apache-2.0
"""What every collector offers: it says what it will attach, attaches, hands out snapshots, and detaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from hopscope.analysis.snapshot import PlanRow

SnapshotT_co = TypeVar("SnapshotT_co", covariant=True)


class Collector(Protocol[SnapshotT_co]):
    """A collector that hands out snapshots. Entering it attaches, leaving it detaches, whatever happened."""

    def __enter__(self) -> Self:
        """Load and attach.

        Raises
        ------
        KernelError
            Nothing useful can be attached on this kernel.
        PrivilegeError
            A right is missing.
        """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Detach."""

    def plan(self) -> list[PlanRow]:
        """Return the way that each probe point got, and the better ones with the reason against them."""

    def measure_cost(self, window_s: float) -> None:
        """Wait, and let the kernel measure the programs meanwhile; called once an interval."""

    def interval(self) -> SnapshotT_co:
        """Return what was seen since the last call."""

    def total(self) -> SnapshotT_co:
        """Return what was seen since the start."""
