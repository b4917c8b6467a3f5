# SPDX-License-Identifier: Apache-2.0
"""A real browser without a screen, for documents that run scripts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
ANSWER = re.compile(r'data-answer="([^"]*)"')


def ask(svg: str, question: str, folder: Path) -> Any:  # noqa: ANN401 - whatever the script answers
    """Open an SVG document, run the body of a function in it, and return what that returns, by way of JSON."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(NAMES)} is installed")
    answer = f"document.documentElement.dataset.answer = JSON.stringify((() => {{ {question} }})());"
    body, end, _ = svg.rpartition("</svg>")
    page = folder / "page.svg"
    page.write_text(f"{body}<script><![CDATA[{answer}]]></script>{end}", encoding="utf-8")
    settings = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1240,900", f"--user-data-dir={folder}/u"]
    command = [found, *settings, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answered = ANSWER.search(done.stdout)
    assert answered, f"the page answered nothing: {done.stderr[-2000:]}"
    return json.loads(unescape(answered[1]))
