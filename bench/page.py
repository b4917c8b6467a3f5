# SPDX-License-Identifier: Apache-2.0
"""``page``: how long the timeline of `hopscope web` takes to show a recording of ten million events in a browser.

A saturating load is recorded until there are so many. Then the page is opened anew for each turn: timed is from when
the browser begins to load it until the frame after the first picture of all events, and, when all parts are at hand,
from a key that zooms until the picture of the new view is complete.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import chromium
from bench import tools, traffic
from bench.measure import Spread, table
from bench.report import events_of
from bench.tools import ToolError
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 5
_LOAD: Final = "tcp"
_PROFILES: Final = ("messages", "cpu")
_EVENTS: Final = 10_000_000
_RECORD_S: Final = 24.0
_ZOOMS: Final = "+++++++++---"
_FIRST_S: Final = 2.0
_ZOOM_MS: Final = 200.0
# A picture is described for screen readers as soon as it is made, and is on the screen two frames later.
_WATCH: Final = """
window.first = 0;
const look = () => {
  if (!document.querySelector(".timeline canvas")?.getAttribute("aria-label")) requestAnimationFrame(look);
  else requestAnimationFrame(() => requestAnimationFrame(() => { window.first = performance.now(); }));
};
requestAnimationFrame(look);
"""
_BEGIN_ZOOM: Final = """
window.begun = performance.now(); window.drawn = 0;
new MutationObserver((_, observer) => {
  if (document.querySelector(".timeline").dataset.state !== "drawn") return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = performance.now() - window.begun; }));
}).observe(document.querySelector(".timeline"), { attributes: true });
"""


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    program = chromium.find()
    if program is None:
        raise ToolError("A browser is needed: apt-get install chromium-headless-shell")
    with TemporaryDirectory(prefix="hopscope-bench-", dir=Path.home()) as name, Namespace() as namespace:
        trace = Path(name) / "trace"
        with traffic.saturated(namespace, _LOAD), tools.running(tools.record(trace, _PROFILES)):
            time.sleep(_RECORD_S)
        events = events_of(trace)
        turns = [_looked_at(program, trace) for _ in range(rounds)]
    part = f"{events / _EVENTS:.1f} of what is wanted"
    yield f"{events:,} events of {traffic.LOADS[_LOAD]} over lo, {part}; median of {rounds}\n"
    first = Spread.of(each for each, _ in turns)
    zoom = Spread.of(ms for _, zooms in turns for ms in zooms)
    rows = [
        ("first picture (s)", first.shown(".2f"), f"{_FIRST_S:.0f}"),
        ("zoom (ms)", zoom.shown(".0f"), f"{_ZOOM_MS:.0f}"),
    ]
    yield table(("", "median", "wanted"), rows) + "\n\n"


def _looked_at(program: str, trace: Path) -> tuple[float, list[float]]:
    """Return how long the first picture took, s, and each zoom, ms."""
    words = (sys.executable, "-m", "hopscope", "web", "--no-browser", str(trace))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout  # noqa: S101 # it is a pipe
        url = child.stdout.readline().strip()
        with chromium.Chromium(program, patience_s=600) as browser:
            browser.show(1280, 900)
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
            browser.open(url)
            first_s = browser.until("window.first") / 1e3
            browser.until("document.querySelector('.timeline').dataset.state === 'shown'")
            browser.evaluate("document.querySelector('.timeline canvas').focus()")
            zooms = [_zoomed(browser, key) for key in _ZOOMS]
        child.send_signal(signal.SIGINT)
    return first_s, zooms


def _zoomed(browser: chromium.Chromium, key: str) -> float:
    browser.evaluate(_BEGIN_ZOOM)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, text=key)
    return float(browser.until("window.drawn"))
