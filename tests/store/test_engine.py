# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from pathlib import Path


def test_tables_of_a_query_are_those_that_it_reads(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace:
        assert trace.tables_of("SELECT * FROM packets p JOIN points USING (point)") == {"packets", "points"}
        assert trace.tables_of("WITH a AS (SELECT 1) SELECT * FROM a, nowhere") == {"nowhere"}
        assert trace.tables_of("SELECT 1; SELECT * FROM nowhere") == {"nowhere"}
        assert trace.tables_of("PIVOT nowhere ON a USING") == {"PIVOT", "nowhere", "ON", "a", "USING"}
