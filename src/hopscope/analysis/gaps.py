# SPDX-License-Identifier: Apache-2.0
"""What a trace does not have, in sentences: events that were lost, points that were not attached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.store.trace import Trace


def lost_events(trace: Trace) -> int:
    """Return how many events are known to be missing."""
    return int(trace.rows("SELECT coalesce(sum(lost), 0) FROM losses")[0][0])


def loss_notes(trace: Trace) -> list[str]:
    """Return a sentence on lost events, if any were."""
    lost = lost_events(trace)
    if not lost:
        return []
    return [f"lost: {lost:,} events: the reader or the disk was too slow; what needs them is missing"]


def unattached(trace: Trace) -> dict[str, str]:
    """Return probe point → why it was not attached, of those that were not."""
    states: dict[str, str] = {}
    used = set()
    for row in trace.metadata.plan:
        point = row.get("point", "")
        if row.get("status") == "attached":
            used.add(point)
        else:
            states[point] = row.get("reason") or row.get("status", "") or "not attached"
    return {point: reason for point, reason in states.items() if point and point not in used}


def unattached_notes(trace: Trace, points: Iterable[str]) -> list[str]:
    """Return a sentence for each of the points that was not attached."""
    reasons = unattached(trace)
    return [f"{point} was not attached: {reasons[point]}" for point in points if point in reasons]
