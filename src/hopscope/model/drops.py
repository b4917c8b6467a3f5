# SPDX-License-Identifier: Apache-2.0
"""Dropped packets: how many, why, where, of whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.model.snapshot import Kind, Overhead, PlanRow

# What drops can be told apart by.
GROUPS: Final = ("reason", "location", "function", "flow", "process", "interface", "netns", "cpu")
NOT_KNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class DropRow:
    """Drops that are alike.

    Attributes
    ----------
    group
        Grouping key → value.
    count
        Packets.
    """

    group: Mapping[str, str]
    count: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """What was dropped in an interval, or in the whole run.

    Attributes
    ----------
    started_ns
        CLOCK_REALTIME.
    rows
        The most frequent first.
    dropped
        Packets: the sum of the rows.
    lost
        Records that the kernel had no room for, each of which may have been of a drop: `dropped` is too low by no more.
    """

    kind: Kind
    started_ns: int
    duration_s: float
    rows: Sequence[DropRow]
    dropped: int
    lost: int
    overhead: Overhead
    plan: Sequence[PlanRow]
    filters: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
