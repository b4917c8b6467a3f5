# SPDX-License-Identifier: Apache-2.0
"""Foreign input ends in a sentence: what is drawn from a seed, and what was once found to end otherwise."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.__main__ import FAMILIES, Case, main, run
from tests.fuzz.kept import KEPT

# So many inputs take a few seconds all together.
SHORT = {"recordings": 4, "columns": 3, "lines": 8, "texts": 400, "kernel": 100, "agent": 20}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_nobody_expects_ends_in_a_sentence(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(family, SHORT[family], 1) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_so_does_much_more_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--inputs", "3000", "--seed", "2"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("case", KEPT)
def test_what_was_found_once_is_not_found_again(case: Case) -> None:
    assert case.check() == []


def test_a_fault_is_found_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.fuzz import texts  # noqa: PLC0415 # what is broken here

    def wrong(text: str) -> None:
        assert len(text) < 4

    monkeypatch.setitem(texts.LANGUAGES, "trigger", (wrong, texts.LANGUAGES["trigger"][1]))
    assert run("texts", 300, 1) == 1
    assert re.search(r"Text\(language='trigger', text=", capsys.readouterr().out)
