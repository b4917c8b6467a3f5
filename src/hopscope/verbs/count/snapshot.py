# SPDX-License-Identifier: Apache-2.0
"""What ``count`` has found in an interval, or in the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.snapshot import Kind, Overhead


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often an event was passed.

    Attributes
    ----------
    event
        ``subsystem:event``, ``function:NAME`` or ``return:NAME``.
    groups
        By whom or where, the most frequent first; one without a name where that is not asked for.
    """

    event: str
    groups: Mapping[str, int]

    @property
    def count(self) -> int:
        """All of them together."""
        return sum(self.groups.values())


@dataclass(frozen=True, slots=True)
class CountSnapshot:
    """All events of an interval, or of the whole run.

    Attributes
    ----------
    started_ns
        CLOCK_REALTIME.
    group_by
        What the groups are; None: nothing.
    events
        As they were asked for.
    overhead
        What counting cost; None: not known, because the kernel counted without a BPF program.
    """

    kind: Kind
    started_ns: int
    duration_s: float
    group_by: str | None
    events: Sequence[EventCount]
    overhead: Overhead | None
    notes: Sequence[str] = ()
