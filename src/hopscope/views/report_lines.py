# SPDX-License-Identifier: Apache-2.0
"""A report for programs: a JSON object a row, or CSV. Units are in the names; what is missing is null, or empty."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from hopscope.views.json_lines import line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.analysis.report import Report

VERSION: Final = 1


def json_lines(report: Report) -> Iterator[str]:
    """Iterate over the rows as objects that schema ``hopscope.report.<name>/1`` describes, each a line."""
    names = [column.name for column in report.columns]
    schema = {"schema": f"hopscope.report.{report.name}/{VERSION}"}
    for row in report.rows():
        yield line(schema | dict(zip(names, row, strict=True)))


def csv_lines(report: Report) -> Iterator[str]:
    """Iterate over the lines of CSV (RFC 4180, but for the line ends): the names, then the rows."""
    yield _csv_line([column.name for column in report.columns])
    for row in report.rows():
        yield _csv_line(row)


def _csv_line(cells: object) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)  # type: ignore[arg-type] # any row
    return out.getvalue()
