# SPDX-License-Identifier: Apache-2.0
"""``hopscope report messages`` on traces made up here: they need no root."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.verbs.report.schema import schema
from tests.lab.command import hopscope
from tests.verbs.report.test_messages import slow_and_fast

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_and_fast().write(tmp_path_factory.mktemp("messages") / "trace")


def test_messages_are_a_table_or_waterfalls(few: Path) -> None:
    done = hopscope("report", "messages", few)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("23 messages; share of the time by cause: reader-runnable")
    assert len([line for line in lines if "reader-runnable" in line and "26.0µs" in line]) == 19
    for options in (("--waterfall",), ("--limit", "10")):
        done = hopscope("report", "messages", few, *options)
        assert done.stdout.count("\nsched.switch ") == 10
        assert done.stdout.splitlines()[-1] == "and 13 more (--limit)"
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_messages_are_rows_for_programs(few: Path) -> None:
    done = hopscope("report", "messages", "--json", few)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 23
    for row in rows:
        jsonschema.validate(row, schema("messages"))
    assert [row["total_ns"] for row in rows[:2]] == [5_026_000, 26_000]
    done = hopscope("report", "messages", "--csv", "--limit", "5", few)
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 5
    assert done.stderr == "hopscope: 18 rows not shown (--limit)\n"


def test_messages_of_a_selection(few: Path) -> None:
    done = hopscope("report", "messages", "--json", "--until", "0.0015", few)
    assert len(done.stdout.splitlines()) == 5
    done = hopscope("report", "messages", few, "--port", "81")
    assert done.stdout.splitlines() == [
        "no messages: no matching socket on this host sent anything during the recording"
    ]
