# SPDX-License-Identifier: Apache-2.0
"""``hopscope report outliers`` on traces made up here: they need no root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.verbs.report.schema import schema
from tests.lab.command import hopscope
from tests.lab.traces import MadeTrace
from tests.verbs.report.test_outliers import busy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = MadeTrace()
    stream = busy(made, 800, lambda number: {"rx.core": 300_000} if number % 131 == 7 else {})
    stream.write(made)
    for number in range(7, 800, 131):
        made.work("irq.enter", stream.packets[number].times["rx.driver"] + 1_000, subject=31)
    return made.write(tmp_path_factory.mktemp("outliers") / "trace")


def test_outliers_name_what_is_different(many: Path) -> None:
    done = hopscope("report", "outliers", many)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rx.driver → rx.core" in done.stdout
    assert "with interrupt 31 at the same time" in done.stdout
    row = json.loads(hopscope("report", "outliers", "--json", many).stdout)
    jsonschema.validate(row, schema("outliers"))
    assert row["messages"] == 7
