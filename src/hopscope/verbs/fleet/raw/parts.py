# SPDX-License-Identifier: Apache-2.0
"""The part of an answer that one trace gives. This runs in a process of a pool, or in an executor of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hopscope.errors import HopscopeError, UsageError, limit_reached
from hopscope.store.limits import raised
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.fleet.raw.question import (
    ABSENT,
    LOST,
    MISSED,
    NOTES,
    RECORDED,
    UNFINISHED,
    UNREAD,
    WARNING,
    WITHOUT,
    Merged,
    Part,
    merged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hopscope.verbs.fleet.raw.asked import Asked

# Traces whose parts wait until they are added up.
_AT_ONCE: Final = 16


def parts_of(asked: Asked, leaves: Iterable[tuple[str, str, str]]) -> Merged:
    """Return what traces say, added up.

    Parameters
    ----------
    asked
        The question.
    leaves
        Host, name and folder of each.
    """
    question = asked.asked
    found: list[Merged] = []
    for host, name, folder in leaves:
        found.append(part_of(asked, host, name, Path(folder)))
        if len(found) >= _AT_ONCE:
            found = [merged(question, found)]
    return merged(question, found)


def part_of(asked: Asked, host: str, name: str, folder: Path) -> Merged:
    """Return what a trace says; one that cannot be read says why."""
    question = asked.asked
    try:
        with raised(asked.limits), Trace(folder) as trace:
            selection = _selection(asked, trace)
            if selection is None:
                return Merged(question.schema.empty_table(), NOTES.empty_table())
            try:
                part = question.part(trace, selection, asked.most)
            except UsageError as error:  # the trace has nothing of the kind
                part = Part((), [(WITHOUT, error.what.replace(f"{folder} has ", "there are "), 1)])
            rows = _table(question.schema, [(host, *row) for row in part.rows])
            notes = [*_of_trace(trace, selection), *((kind, text, False, amount) for kind, text, amount in part.notes)]
    except Exception as error:
        found = error if isinstance(error, HopscopeError) else limit_reached(error)
        if found is None:
            raise
        return unread(asked, host, name, found.what.replace(f"{folder}/", "").replace(str(folder), "it"))
    named = [(kind, text, name if of_one else "", host, amount, 1) for kind, text, of_one, amount in notes]
    return Merged(rows, _table(NOTES, named))


def unread(asked: Asked, host: str, name: str, why: str) -> Merged:
    """Return what is said of a trace that cannot be read."""
    return Merged(asked.asked.schema.empty_table(), _table(NOTES, [(UNREAD, why, name, host, 1, 1)]))


def _selection(asked: Asked, trace: Trace) -> Selection | None:
    """Return which part of a trace counts; None: nothing of it."""
    metadata = trace.metadata
    # Without a bound, so that a trace that was not cut is reported as `hopscope report` does.
    from_ns = 0 if metadata.lead_ns else None
    until_ns = None
    if asked.from_ns is not None and asked.from_ns > metadata.realtime_ns:
        from_ns = asked.from_ns - metadata.realtime_ns
    if asked.until_ns is not None:
        until_ns = asked.until_ns - metadata.realtime_ns
    length_ns = (metadata.ended_ns or metadata.started_ns) - metadata.started_ns
    if (until_ns is not None and until_ns <= 0) or (from_ns and from_ns > length_ns):
        return None
    return Selection(
        from_s=None if from_ns is None else from_ns / 1e9, until_s=None if until_ns is None else until_ns / 1e9
    )


def _of_trace(trace: Trace, selection: Selection) -> Iterator[tuple[str, str, bool, int]]:
    """Yield what is missing from a trace, and how much was recorded: kind, text, whether to name the trace, amount."""
    metadata = trace.metadata
    begin_ns = max(0, round((selection.from_s or 0) * 1e9))
    length_ns = (metadata.ended_ns or metadata.started_ns) - metadata.started_ns
    end_ns = length_ns if selection.until_s is None else min(length_ns, round(selection.until_s * 1e9))
    yield RECORDED, "", False, max(0, end_ns - begin_ns)
    for warning in trace.warnings:
        if warning.startswith("recorded with "):
            yield WARNING, warning, False, 1
        elif not warning.startswith("missed events:"):
            yield UNFINISHED, warning, True, 1
    if metadata.missed:
        yield MISSED, "", False, metadata.missed
    ((lost,),) = trace.rows(f"SELECT coalesce(sum(lost), 0) FROM losses WHERE {selection.window(trace, 'from_ns')}")
    if lost:
        yield LOST, "", False, int(lost)
    for reason, length in trace.rows("SELECT reason, sum(until_ns - from_ns) FROM absences GROUP BY reason"):
        yield ABSENT, reason, False, int(length)


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
