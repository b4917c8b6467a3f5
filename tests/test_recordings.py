# SPDX-License-Identifier: Apache-2.0
"""Recordings of the present format are opened as before, and every report says of them what it said.

`recordings/make.py` made them. What is said is compared as it is. Where a report is meant to say something else
(another name of a cause or a verdict, another word for who held a message, a column more), `make.py --expected` writes
it down anew, and `git diff` shows what changed. Each run compares the reports that a recording was made for;
`make.py --check` all of them, options and all, in some minutes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.recordings.said import MAIN, commands, copied, differences, is_main, said, transcript

if TYPE_CHECKING:
    from pathlib import Path

ASKED = [(name, command) for name in MAIN for command in transcript(name) if is_main(name, command)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recordings")
    copied(MAIN, place)
    return place


@pytest.mark.parametrize(("name", "command"), ASKED, ids=[command.replace(" ", "_")[:60] for _, command in ASKED])
def test_what_is_said_of_a_recording_is_what_was(
    name: str, command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    expected, now = transcript(name)[command], said(command)
    assert now == expected, differences(command, expected, now)


@pytest.mark.parametrize("name", MAIN)
def test_nothing_that_is_asked_is_missing(name: str) -> None:
    asked = list(transcript(name))
    flow = next((re.findall(r"--flow '(.*?)'", command)[0] for command in asked if "--flow" in command), "")
    assert asked == list(commands(name, flow))
