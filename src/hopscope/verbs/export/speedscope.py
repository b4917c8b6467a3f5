# SPDX-License-Identifier: Apache-2.0
"""What CPUs and threads did, and the stacks of drops, for https://www.speedscope.app: a profile for each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from hopscope.errors import UsageError
from hopscope.term.speedscope import Evented, render_speedscope
from hopscope.verbs.export.recorded import timeline
from hopscope.verbs.export.timeline import interleaved
from hopscope.verbs.report.drops import drop_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.timeline import Timeline


def write_speedscope(trace: Trace, selection: Selection, out: BinaryIO, *, limit: int | None) -> list[str]:
    """Write the file, and return sentences on what is missing."""
    found = timeline(trace, selection, limit=limit, parts=["activity"])
    evented = list(_evented(found))
    stacks = drop_stacks(trace, selection)
    if not evented and not stacks:
        raise UsageError(
            f"{trace.folder} has no activity of CPUs and threads, and no stacks, in what was selected",
            "Record with `hopscope record -P cpu` or `-P messages`, and do not select by flow",
        )
    out.write(render_speedscope(f"hopscope: {found.title}", stacks, evented).encode())
    return found.notes


def _evented(found: Timeline) -> Iterator[Evented]:
    """Yield the profile of each track that has intervals."""
    if not found.slices:
        return
    slices, whose, opens = interleaved(found.slices)
    at_ns = np.where(opens, slices.begin_ns[whose], slices.end_ns[whose]) - found.started_ns
    track, name = slices.track[whose], slices.name[whose]
    # Of one time, ends come before begins, whatever is on the track.
    inner = np.flatnonzero(track[1:] != track[:-1]) + 1
    for first, end in pairwise([0, *inner.tolist(), len(track)] if len(track) else []):
        used, places = np.unique(name[first:end], return_inverse=True)
        each = found.tracks[track[first] - 1]
        label = f"{each.name} {each.tid}" if each.kind == "thread" else each.name
        yield Evented(
            label,
            [found.names.texts[number] for number in used.tolist()],
            opens[first:end].tolist(),
            places.reshape(-1).tolist(),
            at_ns[first:end].tolist(),
        )
