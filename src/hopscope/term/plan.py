# SPDX-License-Identifier: Apache-2.0
"""What was attached and what not, and why: the attach plan of a run, and the state of all probe points of a host."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.snapshot import HostFact, MethodStatus, PlanRow, PointStatus
    from hopscope.term.terminal import Terminal

_INDENT = 4


def render_plan(plan: Sequence[PlanRow], terminal: Terminal) -> str:
    """Return a run's attach plan: per probe point the ways that were tried, with reason and next step."""
    lines: list[str] = []
    for point, rows in groupby(plan, key=lambda row: row.point):
        lines += _folded(terminal, point, "bold")
        for row in rows:
            look = "warn" if row.status == "refused" else ""
            reason = f": {row.reason}" if row.reason else ""
            lines += _folded(terminal, f"  {row.status:<11}  {row.way}{reason}", look)
            lines += _details(terminal, row.differs, row.next_step)
    return "\n".join(lines)


def render_probes(kernel: str, points: Sequence[PointStatus], host: Sequence[HostFact], terminal: Terminal) -> str:
    """Return the state of all probe points: per point what it marks and its ways, then the facts about the host."""
    usable = sum(point.chosen is not None for point in points)
    lines = _folded(terminal, f"Linux {kernel}: {usable} of {len(points)} probe points can be attached", "bold")
    for point in points:
        lines += ["", *_folded(terminal, f"{point.point}  {point.marks}", "bold" if point.chosen else "warn")]
        for way in point.ways:
            lines += _way(terminal, way)
    if host:
        lines += ["", *_folded(terminal, "host", "bold")]
    width = max((len(fact.name) for fact in host), default=0)
    for fact in host:
        lines += _folded(
            terminal, f"  {'ok' if fact.ok else '--'}  {fact.name:<{width}}  {fact.value}", "" if fact.ok else "warn"
        )
        lines += _details(terminal, "", fact.next_step)
    return "\n".join(lines)


def _way(terminal: Terminal, way: MethodStatus) -> list[str]:
    state = "used" if way.chosen else "granted" if way.granted else "refused"
    reason = f": {way.reason}" if way.reason else ""
    return [
        *_folded(terminal, f"  {state:<7}  {way.way}{reason}", "" if way.granted else "dim"),
        *_details(terminal, way.differs, way.next_step),
    ]


def _details(terminal: Terminal, differs: str, next_step: str) -> list[str]:
    lines = []
    if differs:
        lines += _folded(terminal, " " * _INDENT + f"difference: {differs}", "dim")
    if next_step:
        lines += _folded(terminal, " " * _INDENT + f"next: {next_step}", "")
    return lines


def _folded(terminal: Terminal, text: str, look: str) -> list[str]:
    lines = terminal.fold(text, indent=_INDENT + 2)
    return [terminal.paint(line, look) for line in lines] if look else lines
