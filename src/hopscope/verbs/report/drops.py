# SPDX-License-Identifier: Apache-2.0
"""Dropped packets of a trace: why, where, and of which flow. Counts are exact, except for lost events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.model.stacks import Stack
from hopscope.term.format import plural
from hopscope.trace.gaps import lost_events, unattached_notes
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

COLUMNS: Final = (
    Column("drops", "count", "packets", "drops"),
    Column("reason", "text", "the kernel's drop reason", "reason"),
    Column(
        "location",
        "text",
        "where in the kernel the packets were dropped: function, offset, and file:line if known",
        "where",
    ),
    Column("flow_name", "text", "source > destination", "flow"),
    Column("interface", "text", "device at which they were dropped", "interface", rank=2),
    Column("per_s", "per_s", "average rate over the run", "per s", rank=1),
    Column("peak_per_s", "per_s", "highest rate in any tenth of a second", "peak/s", rank=1),
    Column("first_ns", "at_ns", "time of the first drop", "first", rank=3),
    Column("last_ns", "at_ns", "time of the last drop", "last", rank=3),
)
STACK: Final = Column("stack", "text", "kernel stack, innermost function first", "stack", rank=0)

# The first level of stacks of drops.
_PART: Final = "drop"
_PEAK_NS: Final = 100_000_000
_GROUP: Final = "reason, location, flow, netns, ifindex"
_QUERY: Final = """
    WITH named AS (
        SELECT d.time_ns, coalesce(r.name, CAST(d.reason AS STRING)) AS reason,
               coalesce(s.name, CASE WHEN d.location = 0 THEN '-' ELSE lower(hex(d.location)) END) AS location,
               d.flow, d.netns, d.ifindex, {stack} AS stack
        FROM drops d LEFT JOIN reasons r ON r.reason = d.reason LEFT JOIN drop_places s ON s.address = d.location
        WHERE {wanted}),
    peaks AS (
        SELECT {group}, stack, max(drops) AS peak
        FROM (SELECT {group}, stack, count(*) AS drops FROM named
              GROUP BY {group}, stack, time_ns - time_ns % {grain_ns}) g
        GROUP BY {group}, stack)
    SELECT count(*) AS drops, n.reason, n.location, max(f.name), max(d.label), max(p.peak) * {peak_factor},
           min(n.time_ns) - {started_ns}, max(n.time_ns) - {started_ns}, n.stack, count(*) OVER () AS groups,
           sum(count(*)) OVER () AS total
    FROM named n JOIN peaks p ON p.reason = n.reason AND p.location = n.location AND p.flow = n.flow
        AND p.netns = n.netns AND p.ifindex = n.ifindex AND p.stack = n.stack
    LEFT JOIN flow_names f ON f.flow = n.flow
    LEFT JOIN device_names d ON d.netns = n.netns AND d.ifindex = n.ifindex
    GROUP BY n.reason, n.location, n.flow, n.netns, n.ifindex, n.stack
    ORDER BY drops DESC, n.reason, n.location, n.flow, n.stack"""


def drop_reasons(trace: Trace, selection: Selection, *, limit: int | None = None, stacks: bool = False) -> Report:
    """Return a row for each reason, location, flow and device, most drops first.

    Parameters
    ----------
    trace, selection
        The trace, and the packets to count.
    limit
        Maximum number of rows.
    stacks
        Whether to group drops by kernel stack, too.
    """
    build(trace, "flow_names", "device_names", "drop_places")
    ended_ns = trace.metadata.ended_ns or trace.rows("SELECT coalesce(max(time_ns), 0) FROM packets")[0][0]
    length_s = max((ended_ns - trace.metadata.started_ns) / 1e9, 0.0)
    conditions = [selection.window(trace, "d.time_ns"), selection.flow(trace, "d.flow"), selection.place(trace, "d.")]
    frames = _frames(trace) if stacks else {}
    query = _QUERY.format(
        stack=_first_alike(frames) if stacks else "-1",
        wanted=" AND ".join(conditions),
        group=_GROUP,
        grain_ns=_PEAK_NS,
        peak_factor=1_000_000_000 // _PEAK_NS,
        started_ns=trace.metadata.started_ns,
    )
    found = trace.rows(query if limit is None else f"{query} LIMIT {limit}")
    rows: list[list[Value]] = []
    for drops, reason, location, flow, device, peak, first, last, stack, *_ in found:
        per_s = drops / length_s if length_s else None
        rows.append([drops, reason, location, flow, device, per_s, peak, first, last])
        if stacks:
            rows[-1].append(frames.get(stack))
    total = found[0][10] if found else 0
    return of_rows(
        "drops",
        (*COLUMNS, STACK) if stacks else COLUMNS,
        rows,
        notes=_notes(trace),
        left_out=found[0][9] - len(found) if found else 0,
        heading=[f"{plural(int(total), 'packet was', 'packets were')} dropped", ""] if total else [],
    )


def _first_alike(frames: Mapping[int, str]) -> str:
    """Return the expression for the first stack that has the same functions: they may differ in the instruction."""
    first: dict[str, int] = {}
    others = [
        f"WHEN {stack} THEN {same}"
        for stack, text in frames.items()
        if (same := first.setdefault(text, stack)) != stack
    ]
    return f"CASE d.stack {' '.join(others)} ELSE d.stack END" if others else "d.stack"


def _frames(trace: Trace) -> dict[int, str]:
    """Return stack → its functions as text."""
    return {stack: " < ".join(found) for stack, found in stack_frames(trace).items()}


def stack_frames(trace: Trace) -> dict[int, list[str]]:
    """Return stack → its functions, the innermost first, without those of the recorder."""
    names: dict[int, list[str]] = {}
    for stack, name in trace.rows(
        "SELECT s.stack, coalesce(n.name, lower(hex(s.address))) FROM stacks s"
        " LEFT JOIN symbols n ON n.address = s.address WHERE s.stack IN (SELECT stack FROM drops)"
        " ORDER BY s.stack, s.depth"
    ):
        names.setdefault(stack, []).append(name)
    return {stack: _outside(found) for stack, found in names.items()}


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
        Stack(_PART, tuple(reversed(frames[stack])), drops, reason)
        for stack, reason, drops in rows
        if frames.get(stack)
    ]


def _outside(names: list[str]) -> list[str]:
    """Return the frames without the BPF program that took the stack, and its callers."""
    last = max((index for index, name in enumerate(names) if name.startswith("bpf_")), default=-1)
    return names[last + 1 :]


def _notes(trace: Trace) -> list[str]:
    notes = unattached_notes(trace, ["skb.drop"])
    lost = lost_events(trace)
    if lost:
        notes.append(
            f"lost: {plural(lost, 'event')}, each of which may have been a drop: the counts may be "
            "too low by up to this number"
        )
    return notes
