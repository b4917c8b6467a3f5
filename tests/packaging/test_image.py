# SPDX-License-Identifier: Apache-2.0
"""What the Containerfile takes from the tree is there, and what it starts is valid."""

from __future__ import annotations

import json
import re
from typing import Final

from tests.lab.command import hopscope
from tests.shared import HERE

TEXT: Final = (HERE.parent / "packaging" / "Containerfile").read_text()


def _words(instruction: str) -> list[str]:
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", TEXT, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def test_what_it_copies_is_there_and_what_it_starts_is_valid() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)]
    names = [name for names in copied for name in names if not name.startswith("dist/")]  # which `make wheel` makes
    assert names == ["requirements/package.txt", "packaging/serve.toml"]
    assert all((HERE.parent / name).is_file() for name in names)
    program, (verb, option, config) = _words("ENTRYPOINT"), _words("CMD")
    assert program == ["hopscope"]
    assert f"COPY packaging/serve.toml {config}\n" in TEXT
    done = hopscope(verb, option, HERE.parent / "packaging" / "serve.toml", "--check")
    assert done.stdout == "The options are valid.\n"


def test_all_that_it_installs_is_known_by_hash() -> None:
    installs = re.findall(r"-m pip install (.*?) (?:\\\n|$)", TEXT)
    assert len(installs) == 2
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
