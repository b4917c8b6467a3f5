# SPDX-License-Identifier: Apache-2.0
"""Drops with their stacks, for which a table has no room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.term.report_table import cell, footer, render_report

if TYPE_CHECKING:
    from hopscope.model.report import Report
    from hopscope.term.terminal import Terminal


def render_drops(report: Report, terminal: Terminal) -> str:
    """Return the table, with the stack below each row if requested."""
    stacks = [column for column in report.columns if column.name == "stack"]
    if not stacks:
        return render_report(report, terminal)
    table = replace(
        report, columns=[column for column in report.columns if column.name != "stack"], notes=(), left_out=0
    )
    lines = render_report(table, terminal).split("\n")
    first = len(lines) - len(report)
    shown = lines[:first]
    for line, stack in zip(lines[first:], report.column("stack"), strict=True):
        shown.append(line)
        shown += [
            terminal.paint(part, "dim") for part in terminal.fold(f"    {cell(stack, 'text', terminal)}", indent=6)
        ]
    return "\n".join(shown + footer(report, terminal))
