# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from tests import leftovers

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    (tmp_path / "b2").mkdir()
    (tmp_path / "0").mkdir()
    assert sorted(leftovers.read_all(tmp_path)) == ["a", "b", "c"]
    assert list(leftovers.read_all(tmp_path / "none")) == []
