# SPDX-License-Identifier: Apache-2.0
"""Foreign input ends in a sentence: what is drawn from a seed, and what was once found to end otherwise."""

from __future__ import annotations

import re

import click
import pytest

from hopscope.verbs.export.command import command as export
from tests.fuzz.__main__ import FAMILIES, Case, main, run
from tests.fuzz.kept import KEPT
from tests.fuzz.lines import verbs
from tests.fuzz.recordings import COMMANDS

# So many inputs take a few seconds all together.
SHORT = {"recordings": 4, "columns": 3, "lines": 8, "texts": 400, "kernel": 100, "agent": 20}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_nobody_expects_ends_in_a_sentence(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(family, SHORT[family], 1) == 0, capsys.readouterr().out


def test_every_report_and_every_format_is_asked_for() -> None:
    (form,) = (
        each.type.choices for each in export.params if each.name == "form" and isinstance(each.type, click.Choice)
    )
    every = {("report", name) for path, _ in verbs() if path[0] == "report" for name in path[1:]}
    every |= {("export", name) for name in form}
    assert every <= {tuple(line.split()[:2]) for line in COMMANDS}


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
