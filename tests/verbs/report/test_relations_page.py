# SPDX-License-Identifier: Apache-2.0
"""The page of relations is as the relations are."""

from __future__ import annotations

from pathlib import Path

from hopscope.verbs.report.relations_page import page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date() -> None:
    assert (DOCS / "relations.md").read_text(encoding="utf-8") == page()
