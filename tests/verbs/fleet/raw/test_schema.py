# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hopscope.term.report_lines import json_lines
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.asking import ask
from hopscope.verbs.fleet.raw.questions import QUESTIONS
from hopscope.verbs.fleet.raw.schema import schema
from tests.lab.fleets import in_process, put

DOCS = Path(__file__).resolve().parents[4] / "docs"
RECORDINGS = Path(__file__).parents[3] / "recordings"


@pytest.mark.parametrize("name", QUESTIONS)
def test_schema_that_is_committed_is_the_one_of_the_columns(name: str) -> None:
    committed = json.loads((DOCS / "json" / f"hopscope.report.fleet.report.{name}-1.schema.json").read_text())
    assert committed == schema(name), "python -m hopscope.verbs.fleet.raw.schema docs/json"
    jsonschema.Draft202012Validator.check_schema(committed)


def test_rows_are_as_their_schema_says(tmp_path: Path) -> None:
    put(tmp_path, RECORDINGS / "drops")
    for name, question in QUESTIONS.items():
        for by_host in (False, True) if question.by_host else (False,):
            lines = [
                json.loads(line) for line in json_lines(ask(tmp_path, Asked(name, by_host), (), in_process).report)
            ]
            assert lines
            for line in lines:
                jsonschema.validate(line, schema(name))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_has_all_columns(name: str) -> None:
    question = QUESTIONS[name]
    page = (DOCS / "fleet-recordings.md").read_text()
    own = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
    columns = {each.name: each for each in (*question.columns, *(question.by_host or question).columns)}
    assert [f"| `{each.name}` | {each.meaning} |" for each in columns.values() if f"| `{each.name}` |" not in own] == []
