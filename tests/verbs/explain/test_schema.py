# SPDX-License-Identifier: Apache-2.0
"""The JSON of ``hopscope explain``, of recordings that are kept: its schema, and its page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from hopscope.verbs.explain.schema import CAUSE, EXPLANATION, schema
from tests.lab.command import SCHEMAS, assert_fits, hopscope, objects
from tests.shared import first

DOCS = SCHEMAS.parent
RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


def test_schema_that_is_committed_is_the_one_of_the_code() -> None:
    committed = json.loads((SCHEMAS / "hopscope.explain-1.schema.json").read_text())
    assert committed == schema(), "python -m hopscope.verbs.explain.schema docs/json"
    jsonschema.Draft202012Validator.check_schema(committed)


@pytest.mark.parametrize(
    ("name", "finding"), first([("drops", None), ("tx", "queue-own"), ("tcp-rx", "reader-asleep")])
)
def test_json_of_a_recording_fits_its_schema(name: str, finding: str | None) -> None:
    done = hopscope("explain", str(RECORDINGS / name), "--json")
    assert done.returncode == 0
    (found,) = objects(done.stdout)
    assert_fits(found, "explain-1")
    assert found["finding"] == finding
    assert sum(each["time_ns"] for each in found["causes"]) == found["total_ns"]


def test_a_command_is_of_a_host_with_the_numbers_that_it_has_there(tmp_path: Path) -> None:
    shutil.copytree(RECORDINGS / "two-hosts", tmp_path / "r", ignore=shutil.ignore_patterns("joined"))
    (found,) = objects(hopscope("explain", tmp_path / "r", "--json").stdout)
    (server,) = [each for each in found["causes"] if each["cause"] == "application"]
    (name, pid, host) = re.match(r"(\w+) \((\d+)\)@(\w+)$", server["culprit"]).groups()  # type: ignore[union-attr]
    assert (name, host, server["advice"]) == ("server", "b", f"on b: sudo perf top -g -p {pid}")


def test_every_member_is_described() -> None:
    text = (DOCS / "explain.md").read_text()
    described = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert [name for name in ("schema", *EXPLANATION, *CAUSE) if name not in described] == []
