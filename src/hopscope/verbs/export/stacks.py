# SPDX-License-Identifier: Apache-2.0
"""The kernel stacks of drops, folded: the stacks that a recording has."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from hopscope.errors import UsageError
from hopscope.model.stacks import Stack
from hopscope.term.folded import render_folded
from hopscope.trace.gaps import loss_notes
from hopscope.verbs.report.drops import stack_frames

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

PART: Final = "drop"


def write_folded(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write a line for each stack, of so many drops at most, and return sentences on what is missing."""
    found = drop_stacks(trace, selection, limit=limit)
    if not found:
        raise UsageError(f"{trace.folder} has no stacks", "Record with `hopscope record -P drops --stacks`")
    out.write(render_folded(found).encode())
    return loss_notes(trace)


def drop_stacks(trace: Trace, selection: Selection, *, limit: int | None = None) -> list[Stack]:
    """Return the stacks of the selected drops, by reason."""
    frames = stack_frames(trace)
    conditions = (selection.window(trace, "d.time_ns"), selection.flow(trace, "d.flow"), selection.place(trace, "d."))
    wanted = " AND ".join(conditions)
    rows = trace.rows(
        "SELECT d.stack, coalesce(r.name, CAST(d.reason AS STRING)), count(*) FROM"
        f" (SELECT * FROM drops d WHERE {wanted} ORDER BY d.time_ns{'' if limit is None else f' LIMIT {limit}'}) d"
        " LEFT JOIN reasons r ON r.reason = d.reason WHERE d.stack >= 0 GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return [
        Stack(PART, tuple(reversed(frames[stack])), drops, reason) for stack, reason, drops in rows if frames.get(stack)
    ]
