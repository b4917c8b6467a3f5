# SPDX-License-Identifier: Apache-2.0
"""The kernel stacks of drops, folded: the stacks that a recording has."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from hopscope.errors import UsageError
from hopscope.term.folded import render_folded
from hopscope.trace.gaps import loss_notes
from hopscope.verbs.report.drops import drop_stacks

if TYPE_CHECKING:
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection


def write_folded(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write a line for each stack, of so many drops at most, and return sentences on what is missing."""
    found = drop_stacks(trace, selection, limit=limit)
    if not found:
        raise UsageError(f"{trace.folder} has no stacks", "Record with `hopscope record -P drops --stacks`")
    out.write(render_folded(found).encode())
    return loss_notes(trace)
