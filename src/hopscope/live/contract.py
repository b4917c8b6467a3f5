# SPDX-License-Identifier: Apache-2.0
"""What every collector offers: it says what it will attach, attaches, hands out snapshots, and detaches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from hopscope.clock.wall_clock import wall_offset_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from hopscope.model.message import Message
    from hopscope.model.slowest import Slowest
    from hopscope.model.snapshot import Kind, PlanRow

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


class MessageSource(Protocol):
    """Where single messages come from."""

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC where the messages were stamped."""

    @property
    def dropped(self) -> int:
        """Messages that could have been fetched and were not: see :meth:`close`."""

    def fetch(self) -> list[Message]:
        """Return the next messages, none where there are none or they are not wanted one by one.

        Not all at once, if they are many. To be called several times a second, also where only the slowest are wanted.
        """

    def close(self) -> None:
        """Drop and count what has come and was not fetched; nothing is fetched any more."""

    def slowest(self, kind: Kind) -> Slowest | None:
        """Return the slowest messages since the last call, or of the run; None where they are not wanted."""


def batches(source: MessageSource, most_s: float) -> Iterator[list[Message]]:
    """Fetch until there is nothing more, or for so long."""
    until_s = time.monotonic() + most_s
    while found := source.fetch():
        yield found
        if time.monotonic() >= until_s:
            return


class NoMessages:
    """Where no single messages come from; see :class:`MessageSource`."""

    @property
    def offset_ns(self) -> int:
        """Wall clock minus CLOCK_MONOTONIC of this host."""
        return wall_offset_ns()

    @property
    def dropped(self) -> int:
        """None."""
        return 0

    def fetch(self) -> list[Message]:
        """Return none."""
        return []

    def close(self) -> None:
        """Do nothing."""

    def slowest(self, kind: Kind) -> Slowest | None:  # noqa: ARG002 - as MessageSource has it
        """Return None: they are not wanted."""
        return None
