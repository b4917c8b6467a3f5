# SPDX-License-Identifier: Apache-2.0
"""The command line."""

from __future__ import annotations

import importlib

import pytest

from bench.__main__ import BENCHMARKS, machine, main


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_name_is_a_module_that_runs(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").run)


def test_unknown_name_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["ring", "rings"])
    said = capsys.readouterr()
    assert not said.out
    assert f"no benchmark rings; there are {', '.join(BENCHMARKS)}" in said.err


def test_machine_is_named_without_a_date() -> None:
    assert machine().startswith("Linux ")
    assert " CPUs (" in machine()
