# SPDX-License-Identifier: Apache-2.0
"""Outliers as a table, with further differences below each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hopscope.term.report_table import footer, render_report

if TYPE_CHECKING:
    from hopscope.model.report import Report
    from hopscope.term.terminal import Terminal

_INDENT = 6


def render_outliers(report: Report, terminal: Terminal) -> str:
    """Return heading, table and notes as lines without a line end after the last."""
    shown = [column for column in report.columns if column.name != "different"]
    whole = replace(report, columns=shown, notes=(), left_out=0, heading=())
    lines = [line for text in report.heading for line in terminal.fold(text)]
    if len(report):
        titles, *rows = render_report(whole, terminal).split("\n")
        lines.append(titles)
        for row, different in zip(rows, report.column("different"), strict=True):
            lines.append(row)
            if different:
                lines += [terminal.paint(line, "cyan") for line in terminal.fold(f"      with {different}", _INDENT)]
    return "\n".join(lines + footer(report, terminal))
