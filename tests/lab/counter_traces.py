# SPDX-License-Identifier: Apache-2.0
"""Traces that have readings of counters, made by the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.counters.deltas import moves
from hopscope.store.meta import Metadata
from hopscope.store.writer import TraceWriter
from hopscope.trace.recorded_counters import rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.model.counters.readings import Readings


def written(folder: Path, found: Sequence[Readings]) -> Path:
    """Write readings into a trace that began at 0, and return its folder."""
    before = None
    with TraceWriter(folder, Metadata("1", 0, 0, {})) as writer:
        for now in found:
            for table, columns in rows(before, now):
                writer.append(table, columns)
            before = now
    return folder


def counted(first: Readings, last: Readings, netns: int, source: str) -> dict[str, int]:
    """Return name → what it counted between two readings, of a source without subjects in a namespace."""
    return {
        move.key.name: move.by
        for move in moves(first, last)
        if (move.key.netns, move.key.source, move.key.subject) == (netns, source, "")
    }
