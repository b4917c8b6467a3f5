# SPDX-License-Identifier: Apache-2.0
"""Pages of the manual, and words that shells complete, are made of the commands themselves."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import manual
from hopscope.main import VERBS
from tests.lab.command import HOPSCOPE, environ

if TYPE_CHECKING:
    from pathlib import Path


def test_each_command_has_a_page_that_names_its_options(tmp_path: Path) -> None:
    manual.write(tmp_path)
    pages = {path.stem: path.read_text() for path in (tmp_path / "man" / "man1").iterdir()}
    assert {f"hopscope-{verb}" for verb in VERBS} < pages.keys()
    assert "hopscope-report-hops" in pages
    assert ".SH WHAT TO MEASURE\n" in pages["hopscope-rx"]
    assert "\n.TP\n.B \\-d, \\-\\-duration SECONDS\n" in pages["hopscope-rx"]
    for name, page in pages.items():
        requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
        assert requests <= {*(".TH", ".SH", ".PP", ".TP", ".B", ".BR", ".RS", ".RE", ".nf", ".fi")}, name


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        ("hopscope recor", {"record", "recordings"}),
        ("hopscope rx --group-by p", {"process", "protocol", "port", "peer"}),
    ],
)
def test_a_shell_completes_words(words: str, shows: set[str]) -> None:
    asked = {"_HOPSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(HOPSCOPE, env=environ(**asked), capture_output=True, text=True, check=True)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == shows


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_the_script_of_bash_is_one(tmp_path: Path) -> None:
    manual.write(tmp_path)
    script = tmp_path / manual.COMPLETIONS["bash"]
    done = subprocess.run(
        ["bash", "-c", f". {script}; complete -p hopscope"], capture_output=True, text=True, check=True
    )
    assert "hopscope" in done.stdout
