# SPDX-License-Identifier: Apache-2.0
"""``hopscope report compare`` on traces made up here: they need no root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.verbs.report.schema import schema
from tests.lab.command import complaint, hopscope
from tests.lab.traces import MadeTrace
from tests.verbs.report.test_outliers import busy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = MadeTrace()
    busy(made, 300, lambda _: {}).write(made)
    return made.write(tmp_path_factory.mktemp("compare") / "trace")


@pytest.mark.slow
def test_a_trace_does_not_differ_from_itself(many: Path) -> None:
    done = hopscope("report", "compare", many, many)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no hop differs: 13 hops compared ")
    for line in hopscope("report", "compare", "--json", many, many).stdout.splitlines():
        row = json.loads(line)
        jsonschema.validate(row, schema("compare"))
        assert (row["verdict"], row["p50_ratio"], row["delta"]) == ("same", 1.0, 0.0)


def test_a_second_trace_that_is_none_is_told(many: Path, tmp_path: Path) -> None:
    done = hopscope("report", "compare", many, tmp_path / "none")
    assert "is not a trace" in complaint(done, 1)
