# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.verbs.fleet.schema import QUESTIONS, schema
from tests.lab.command import assert_fits, hopscope, objects

if TYPE_CHECKING:
    from bench.made_fleet import Planted

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "fleet.md").read_text()


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_schema_and_page_are_those_of_the_columns(question: str) -> None:
    committed = json.loads((DOCS / "json" / f"hopscope.report.fleet.{question}-1.schema.json").read_text())
    assert committed == schema(question), "python -m hopscope.verbs.fleet.schema docs/json"
    jsonschema.Draft202012Validator.check_schema(committed)
    section = PAGE.partition(f"## `{question}`")[2].partition("\n## ")[0]
    for column in QUESTIONS[question]:
        assert f"| `{column.name}` | {column.meaning} |" in section


def test_rows_fit_their_schemas(planted: tuple[Path, Planted]) -> None:
    folder, truth = planted
    for question, words in {
        "hosts": (), "differs": (), "common": (), "drops": ("--by", "driver"),
        "began": ("--hop", truth.hop, "--hosts", truth.late), "objective": ("--hop", truth.hop, "--above", "2us"),
    }.items():  # fmt: skip
        found = objects(hopscope("fleet", question, folder, "--json", *words).stdout)
        assert found
        for row in found:
            assert_fits(row, f"report.fleet.{question}-1")
