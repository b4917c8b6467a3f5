# SPDX-License-Identifier: Apache-2.0
"""The pages for those who work on hopscope name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
# Stands for what a reader chooses.
_CHOSEN = re.compile(r"NAME|FORM|SUBJECT")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {each for each in re.findall(r"[`(]((?:src|tests|docs)/[^`)#\s]*)[`)#]", text) if not _CHOSEN.search(each)}
    assert named
    assert {each for each in named if not list(ROOT.glob(each.rstrip("/")))} == set()
    folders = re.findall(r"`((?:live|store|libbpf|bpf|trace|verbs)/[\w./]+)`", text)
    assert {each for each in folders if not (ROOT / "src" / "hopscope" / each).exists()} == set()


def test_every_layer_has_its_paragraph_in_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [sorted(layer.split(" | ")) for layer in contracts[0]["layers"]]
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+)\| ", text, re.MULTILINE)
    assert [sorted(re.findall(r"\w+", row)) for row in rows] == [
        [name for name in layer if name != "__main__"] for layer in layers if layer != ["__main__"]
    ]


def test_what_a_packet_passes_is_where_the_page_says() -> None:
    steps = (ROOT / "ARCHITECTURE.md").read_text().partition("## Follow one packet")[2]
    found = re.findall(r"^\d+\. ((?:`src\S+`(?: and )?)+): (.*?)(?=^\d+\.|^$)", steps, re.MULTILINE | re.DOTALL)
    assert len(found) == 11
    for files, text in found:
        sources = "".join((ROOT / file).read_text() for file in re.findall(r"`(\S+?)`", files))
        names = [name for name in re.findall(r"`([\w.]+)`", text) if "_" in name or name.islower()]
        missing = [name for name in names if name.rpartition(".")[2].rstrip("_") not in sources]
        assert missing == [], files


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`(?:sudo )?make ([a-z-]+)", (ROOT / page).read_text())}
    assert named <= targets | {"help"}
