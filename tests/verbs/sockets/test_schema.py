# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hopscope.verbs.sockets.schema import SCHEMAS, schema

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "json"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schema_that_is_committed_is_the_one_of_the_tables(name: str) -> None:
    committed = json.loads((FOLDER / f"hopscope.{name}-1.schema.json").read_text())
    assert committed == schema(name), "python -m hopscope.verbs.sockets.schema docs/json"
    jsonschema.Draft202012Validator.check_schema(committed)
