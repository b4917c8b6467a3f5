# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from hopscope.term.report_lines import json_lines
from hopscope.verbs.sql.reports import query_report
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("relation", ["flows", "skb_lifetimes"])
def test_numbers_of_flows_are_strings_in_json(relation: str, tmp_path: Path) -> None:
    column = "life_flow" if relation == "skb_lifetimes" else "flow"
    with Trace(small().write(tmp_path / "trace")) as trace:
        report = query_report(trace, f"SELECT {column}, count(*) AS rows FROM {relation} GROUP BY 1")
        rows = [json.loads(line) for line in json_lines(report)]
    assert [(row[column], row["rows"]) for row in rows] == [(str(flow), count) for flow, count in report.rows()]
    assert any(abs(int(row[column])) > 1 << 53 for row in rows)
