# SPDX-License-Identifier: Apache-2.0
"""A real browser without a screen, for documents that run scripts."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

import chromium

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = re.compile(r'data-answer="([^"]*)"')


def program() -> str:
    """Return the path of a browser; the test is skipped where there is none."""
    found = chromium.find()
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(chromium.NAMES)} is installed")
    return found


def ask(svg: str, question: str, folder: Path) -> Any:  # noqa: ANN401 - whatever the script answers
    """Open an SVG document, run the body of a function in it, and return what that returns, by way of JSON."""
    found = program()
    answer = f"document.documentElement.dataset.answer = JSON.stringify((() => {{ {question} }})());"
    body, end, _ = svg.rpartition("</svg>")
    page = folder / "page.svg"
    page.write_text(f"{body}<script><![CDATA[{answer}]]></script>{end}", encoding="utf-8")
    command = [
        found,
        *chromium.SETTINGS,
        "--window-size=1240,900",
        f"--user-data-dir={folder}/u",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answered = ANSWER.search(done.stdout)
    assert answered, f"the page answered nothing: {done.stderr[-2000:]}"
    return json.loads(unescape(answered[1]))
