# SPDX-License-Identifier: Apache-2.0
"""A recording for the tests of the page."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.verbs.web.served import RECORDINGS

if TYPE_CHECKING:
    from pathlib import Path

# Markup, an event handler, an escape sequence, the end of a line, and a change of the writing direction.
EVIL = "<img src=x onerror=pwned=1><script>pwned=1</script>'\"\x1b]0;x\x07\u202e"
NAMES = {"threads": "comm", "symbols": "name", "devices": "name", "namespaces": "name"}


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording whose threads, functions, devices and host have names that would do harm."""
    folder = tmp_path_factory.mktemp("web") / "drops"
    shutil.copytree(RECORDINGS / "drops", folder)
    for table, column in NAMES.items():
        for file in (folder / table).glob("*.parquet"):
            evil = EVIL.replace("'", "''")
            rows = duckdb.sql(f"SELECT * REPLACE ({column} || '{evil}' AS {column}) FROM '{file}'")
            duckdb.from_arrow(rows.to_arrow_table()).write_parquet(str(file))
    document = json.loads((folder / "hopscope.json").read_text())
    document["host"]["name"] += EVIL
    (folder / "hopscope.json").write_text(json.dumps(document))
    return folder
