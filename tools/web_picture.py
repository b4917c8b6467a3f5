# SPDX-License-Identifier: Apache-2.0
"""Write docs/web.png and docs/timeline.png: the page of `hopscope web`, of recordings of the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import chromium

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "tests" / "recordings"
# What is in the window is filled.
BUSY = "[...document.querySelectorAll('[aria-busy=true]')]"
READY = f"!{BUSY}.some((each) => each.getBoundingClientRect().top < innerHeight)"
TIMELINE = "document.querySelector('.timeline')"
# The file, the recording, the window, what of it, what has to be there.
PICTURES = (
    ("web.png", "tcp-rx", (860, 940), "", "document.querySelectorAll('.heat').length"),
    (
        "timeline.png",
        "udp",
        (1180, 800),
        "timeline-from=506400000&timeline-until=508000000&timeline-a=506609600&timeline-b=506668800&timeline-used=1",
        f"({TIMELINE}.closest('section').scrollIntoView() ?? true) && {TIMELINE}.dataset.state === 'shown'",
    ),
)


def main() -> None:
    """Start the page of each recording, look at it, and end it."""
    program = chromium.find()
    if program is None:
        sys.exit("A browser is needed: apt-get install chromium-headless-shell")
    for name, recording, size, view, filled in PICTURES:
        words = [sys.executable, "-m", "hopscope", "web", "--no-browser", str(RECORDINGS / recording)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout  # noqa: S101 # it is a pipe
            url = child.stdout.readline().strip()
            with chromium.Chromium(program) as browser:
                browser.show(*size)
                browser.open(f"{url}&{view}")
                browser.until(f"document.querySelector('section') && {READY} && ({filled})")
                (ROOT / "docs" / name).write_bytes(browser.screenshot())
            child.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
