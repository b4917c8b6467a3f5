# SPDX-License-Identifier: Apache-2.0
"""Write docs/web.png: the page of `hopscope web`, of a recording of the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import chromium

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "recordings" / "tcp-rx"
PICTURE = ROOT / "docs" / "web.png"
SIZE = (860, 940)
FILLED = "document.querySelectorAll('.heat').length && !document.querySelector('[aria-busy=true]')"


def main() -> None:
    """Start the page, look at it, and end it."""
    program = chromium.find()
    if program is None:
        sys.exit("A browser is needed: apt-get install chromium-headless-shell")
    words = [sys.executable, "-m", "hopscope", "web", "--no-browser", str(RECORDING)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout  # noqa: S101 # it is a pipe
        url = child.stdout.readline().strip()
        with chromium.Chromium(program) as browser:
            browser.show(*SIZE)
            browser.open(url)
            browser.until(FILLED)
            PICTURE.write_bytes(browser.screenshot())
        child.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
