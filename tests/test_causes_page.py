# SPDX-License-Identifier: Apache-2.0
"""The page on causes has each of them, as the code has it, and in its order."""

from __future__ import annotations

import re
from pathlib import Path

from hopscope.model.cause import CAUSES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "causes.md"


def test_every_cause_is_described_as_in_the_code() -> None:
    table = PAGE.read_text().partition("## All causes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    assert [row[:3] for row in rows] == [(cause.name, cause.part, cause.meaning) for cause in CAUSES]
    assert all(row[3].strip() for row in rows)
