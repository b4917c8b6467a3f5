# SPDX-License-Identifier: Apache-2.0
"""The pages on traces and reports say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hopscope.store.schema import TABLES, Table
from hopscope.verbs.report.command import command
from hopscope.verbs.report.schema import REPORTS

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_of_a_trace_is_described(table: Table) -> None:
    text = (DOCS / "trace.md").read_text()
    assert f"### `{table.name}`: {table.meaning}" in text
    for column in table.columns:
        kind = "text" if column.dtype == "object" else np.dtype(column.dtype).name
        assert f"| `{column.name}` | {kind} | {column.meaning} |" in text


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_column_of_a_report_is_described(name: str) -> None:
    text = "".join((DOCS / page).read_text() for page in ("report.md", "report-messages.md"))
    always, sometimes = REPORTS[name]
    assert [
        column.name for column in (*always, *sometimes) if f"| `{column.name}` | {column.meaning} |" not in text
    ] == []


def test_every_report_is_described() -> None:
    text = (DOCS / "report.md").read_text()
    assert [name for name in command.commands if not re.search(rf"\nhopscope report {name} (\S+ )?trace", text)] == []
