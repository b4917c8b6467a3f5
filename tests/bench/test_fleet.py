# SPDX-License-Identifier: Apache-2.0
"""The benchmark of fleets finds what it has planted."""

from __future__ import annotations

import pytest

from bench import fleet


@pytest.mark.slow
def test_it_finds_what_it_has_planted(capsys: pytest.CaptureFixture[str]) -> None:
    said = "".join(fleet.run(1, (60,)))
    assert "slower hosts: 2 planted, 2 found, 0 others found; on another hop: 0" in said
    assert "began: planted 2026-11-20 15:" in said
    assert "ixgbe planted with 24 times as many, ixgbe found with" in said
    assert all(f"\n{name}" in said for name in ("hosts", "differs, all hops", "began", "objective by role"))
    assert capsys.readouterr().out == ""
