# SPDX-License-Identifier: Apache-2.0
"""A report as a table for people: units scaled, what does not fit left out, notes below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term.grid import Column, render_grid

if TYPE_CHECKING:
    from hopscope.model.report import Report, Unit, Value
    from hopscope.term.terminal import Terminal


def render_report(report: Report, terminal: Terminal) -> str:
    """Return heading, table and notes as lines without a line end after the last."""
    lines = [line for text in report.heading for line in terminal.fold(text) or [""]]
    if len(report):
        lines += render_grid(
            [
                Column(column.title, cells(report, column.name, column.unit, terminal), column.rank, _is_text(column))
                for column in report.columns
            ],
            terminal,
        )
    elif not report.notes:
        lines += terminal.fold(NOTHING)
    return "\n".join(lines + footer(report, terminal))


NOTHING: Final = "No matching records in this trace."


def footer(report: Report, terminal: Terminal) -> list[str]:
    """Return what stands below a report: what a limit left out, and its notes."""
    lines = []
    if report.left_out:
        lines += terminal.fold(f"and {report.left_out:,} more (--limit)")
    for note in report.notes:
        lines += [terminal.paint(line, "warn") for line in terminal.fold(note)]
    return lines


def cells(report: Report, name: str, unit: Unit, terminal: Terminal) -> list[str]:
    """Return the texts of a column."""
    return [cell(value, unit, terminal) for value in report.column(name)]


def cell(value: Value, unit: Unit, terminal: Terminal) -> str:
    """Return a value as a text with its unit; ``-`` for what is missing."""
    if value is None:
        return fmt.MISSING
    if isinstance(value, str):
        return value
    if unit == "ns":
        return fmt.time(value, unicode=terminal.unicode)
    if unit == "at_ns":
        return f"{value / 1e9:.6f}"
    if unit in {"count", "bytes"}:
        return fmt.count(round(value))
    return {"part": fmt.part, "per_s": fmt.rate}.get(unit, str)(value)


def _is_text(column: object) -> bool:
    return getattr(column, "unit", "") == "text"
