# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, over a recording whose names are hostile. One server and one browser serve all tests."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import hopscope
from hopscope.term.report_lines import json_lines
from tests.verbs.web.served import SIZE, look, looking, printed_json, serving, show, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chromium import Chromium
    from tests.verbs.web.served import Site

SLICED = {"sched.switch", "sched.wake", "irq.enter", "irq.exit", "softirq.enter", "softirq.exit"}
CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]"
DRAWN = "document.querySelector('.timeline').dataset.state === 'shown'"
LABEL = "document.querySelector('.timeline canvas').getAttribute('aria-label')"


@pytest.fixture(scope="module")
def site(hostile: Path) -> Iterator[Site]:
    with serving(hostile) as made:
        yield made


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Chromium]:
    with looking(site) as opened:
        yield opened


@pytest.fixture(scope="module")
def recording(hostile: Path) -> Iterator[hopscope.Recording]:
    with hopscope.open(hostile) as opened:
        yield opened


@functools.cache
def rows_of(recording: hopscope.Recording, name: str, **options: object) -> list[dict[str, Any]]:
    """Return what the report says by itself."""
    return [json.loads(line) for line in json_lines(recording.report(name, **options))]


# Notes what the page asks, and whether the timeline shows something by then.
NOTING = """
window.asked = [];
const real = window.fetch;
window.fetch = (path, options) => {
  const drawn = document.querySelector('.timeline canvas')?.getAttribute('aria-label') ?? '';
  if (path === '/api/ask') asked.push([JSON.parse(options.body).ask, /with [1-9]/.test(drawn)]);
  return real(path, options);
};
"""


def test_the_timeline_is_asked_first(site: Site) -> None:
    with looking(site) as browser:
        browser.show(1200, 900)
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=NOTING)
        browser.open(f"{site.base}#token={site.token}")
        (first, _), *others = browser.until("window.asked?.length > 5 && asked")
        assert first == "timeline"
        assert {"heat", "explain"} <= {each for each, _ in others}
        assert all(drawn for _, drawn in others)
        browser.open("about:blank")
        browser.open(f"{site.base}#panel=sql&sql=SELECT+1")  # where it is not seen, nothing waits for it
        browser.until("!!document.querySelector('#sql tbody tr')")
        assert "timeline" not in dict(browser.evaluate("asked"))


REPORTS = {
    "hops": ("hops", {}),
    "messages": ("messages", {"limit": 20}),
    "requests": ("requests", {"limit": 20}),
    "drops": ("drops", {}),
    "cpu": ("cpu", {"limit": 20}),
}


@pytest.mark.parametrize("panel", REPORTS)
def test_a_panel_shows_what_the_report_says(
    panel: str, site: Site, browser: Chromium, recording: hopscope.Recording
) -> None:
    look(site, browser, panel)
    name, options = REPORTS[panel]
    expected = rows_of(recording, name, **options)
    shown = shown_rows(browser, f"#{panel}")
    titles = browser.evaluate(f"[...document.querySelectorAll('#{panel} th')].map((each) => each.innerText)")
    assert len(titles) >= 4
    assert expected
    assert len(shown) == len(expected)
    for cells, row in zip(shown, expected, strict=True):
        known = [re.sub("\u202e", "?", each) if isinstance(each, str) else each for each in row.values()]
        assert [cell for cell in cells if cell not in known] == []


def test_the_timeline_shows_one_message_with_its_events_and_measures_it(
    site: Site, browser: Chromium, recording: hopscope.Recording
) -> None:
    slowest = rows_of(recording, "messages", limit=20)[0]
    begin, end = slowest["begin_ns"], slowest["begin_ns"] + slowest["total_ns"] + 1
    window = {"timeline-from": begin, "timeline-until": end, "timeline-a": begin, "timeline-b": end - 1}
    look(site, browser, "timeline", "tbody tr", **window)
    browser.until(DRAWN)
    expected = rows_of(recording, "events", from_=begin / 1e9, until=end / 1e9)
    listed = shown_rows(browser, "#timeline")
    started_ns = int(site.ask({"ask": "timeline", "part": "events", "columns": 1})[1]["started_ns"])
    at = [f"{(row['time_ns'] - started_ns) / 1e9:.9f} s" for row in expected]
    assert [row[0] for row in listed[: len(at)]] == at[: len(listed)]
    label = browser.evaluate(LABEL)
    assert f"{sum(row['point'] not in SLICED for row in expected)} events" in label
    assert f"A to B: {slowest['total_ns']:,} ns" in browser.evaluate("document.querySelector('.markers').textContent")

    browser.evaluate("document.querySelector('.timeline canvas').focus()")
    for key, expression in (
        ("+", f"Number(new URLSearchParams(location.hash.slice(1)).get('timeline-until')) < {end}"),
        ("Home", f"Number(new URLSearchParams(location.hash.slice(1)).get('timeline-from')) < {begin}"),
        ("Escape", "!location.hash.includes('timeline-a=')"),
        ("b", "location.hash.includes('timeline-b=')"),
    ):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key)
        browser.until(f"({expression}) && {DRAWN}")
    label = browser.evaluate(LABEL)
    assert re.search(r" (\d\d) messages with arrows", label)
    rows = int(label.split()[2])
    look(site, browser, "timeline", "tbody tr", **window, **{"timeline-used": 1})
    browser.until(DRAWN)
    label = browser.evaluate(LABEL)
    assert 0 < int(label.split()[2]) < rows


BOX = "((box) => [box.x, box.y, box.width])(document.querySelector('.heat canvas').getBoundingClientRect())"
# Two pictures, so that what follows from a change of the layout has been done.
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def test_what_the_pointer_is_on_stays_while_what_is_above_it_is_filled(site: Site, browser: Chromium) -> None:
    look(site, browser, "heat", ".heat canvas")
    show(browser, "summary")
    browser.evaluate(f"scrollBy(0, {BOX}[1] - 300)")  # so that the end of what is above it is seen
    browser.evaluate(PAINTED)
    x, y, _ = browser.evaluate(BOX)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 100, y=y + 30)
    before = browser.evaluate(BOX)
    for height in (300, 20):
        browser.evaluate(f"document.querySelector('#summary .body').style.paddingBottom = '{height}px'")
        browser.evaluate(PAINTED)
        assert browser.evaluate(BOX) == before
    browser.evaluate("document.querySelector('#summary .body').style.paddingBottom = ''")


def test_a_dragged_period_is_that_of_all_panels(site: Site, browser: Chromium, recording: hopscope.Recording) -> None:
    look(site, browser, "heat", ".heat canvas")
    before = len(rows_of(recording, "hops"))
    for kind, part in (("mouseMoved", 0.4), ("mousePressed", 0.4), ("mouseMoved", 0.7), ("mouseReleased", 0.7)):
        x, y, width = browser.evaluate(BOX)
        buttons = {} if kind == "mouseMoved" and part == 0.4 else {"button": "left", "buttons": 1, "clickCount": 1}
        browser.call("Input.dispatchMouseEvent", type=kind, x=x + part * width, y=y + 30, **buttons)
    window = browser.until("new URLSearchParams(location.hash.slice(1)).get('until') && location.hash")
    chosen = dict(re.findall(r"(from|until)=([\d.]+)", window))
    show(browser, "hops", "tbody tr")
    expected = rows_of(recording, "hops", from_=float(chosen["from"]), until=float(chosen["until"]))
    assert sum(row["count"] for row in expected) > 0
    assert len(expected) <= before
    assert [row[1] for row in shown_rows(browser, "#hops")] == [row["count"] for row in expected]
    command = browser.evaluate("document.querySelector('#hops .copy').title")
    assert [row["count"] for row in printed_json(command, recording.path)] == [row["count"] for row in expected]


def test_a_period_can_be_selected_by_keys_alone(site: Site, browser: Chromium) -> None:
    look(site, browser, "heat", ".heat canvas")
    browser.evaluate("document.querySelector('.heat canvas').focus()")
    for key, shift in (("ArrowRight", 0), ("ArrowRight", 0), ("PageDown", 8), ("Enter", 0)):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=shift)
    browser.until("location.hash.includes('from=') && location.hash.includes('until=')")


def test_a_message_is_told_with_its_stages_and_cause(
    site: Site, browser: Chromium, recording: hopscope.Recording
) -> None:
    slowest = rows_of(recording, "messages", limit=20)[0]
    look(site, browser, "messages", ".explained p", message=slowest["begin_ns"])
    sentence = browser.evaluate("document.querySelector('#messages .explained p').textContent")
    command = browser.evaluate("document.querySelector('#messages .explained .copy').title")
    (said,) = printed_json(command, recording.path)
    assert said["causes"][0]["sentence"] in sentence
    stages = browser.evaluate(
        "[...document.querySelectorAll('.waterfall tbody tr')].map((row) => row.cells[3].innerText)"
    )
    assert slowest["blame"] in ", ".join(stages)


def test_two_periods_are_compared_as_the_report_does(site: Site, browser: Chromium) -> None:
    first, second = {"until": 1.0}, {"second-from": 1.0}
    look(site, browser, "compare", ".report", **first, **second)
    report = site.ask({"ask": "report", "name": "compare", "other": False, "options": {**first, **second}})[1]
    assert len(shown_rows(browser, "#compare")) == len(report["rows"]) > 0
    assert report["notes"] == browser.evaluate(
        "[...document.querySelectorAll('#compare .notes p')].map((each) => each.textContent)"
    )


def test_a_query_is_answered(site: Site, browser: Chromium, recording: hopscope.Recording) -> None:
    look(site, browser, "sql", sql="SELECT count(*) AS n FROM packets")
    assert shown_rows(browser, "#sql") == [[len(recording["packets"])]]


def test_names_of_others_are_text_and_nothing_else(
    site: Site, browser: Chromium, recording: hopscope.Recording
) -> None:
    slowest = rows_of(recording, "messages", limit=20)[0]
    look(site, browser, message=slowest["begin_ns"], stacks=1, sql="SELECT comm FROM threads", report="events", flow="")
    panels = browser.evaluate("[...document.querySelectorAll('section')].map((each) => each.id)")
    for panel in panels:
        show(browser, panel)
    show(browser, "drops", "iframe")
    show(browser, "cpu", "iframe")
    show(browser, "sql", "tbody tr")
    text = browser.evaluate("document.body.textContent")
    assert text.count("<img src=x onerror=pwned=1>") > 10
    assert not re.search(CONTROLS, text)
    assert (
        browser.evaluate("document.querySelectorAll('main script, main img, main [onerror], body > script').length")
        == 0
    )
    assert browser.evaluate("typeof pwned") == "undefined"
    assert "#" not in browser.evaluate("document.title")
    for of in ("drops", "cpu"):
        status, headers, graph = site.send(f"/api/flame.svg?of={of}")
        assert status == 200
        assert headers["content-security-policy"].startswith(
            "sandbox allow-scripts; default-src 'none'; script-src 'sha256-"
        )
        assert b"&lt;img" in graph
        assert b"<img" not in graph


def test_it_can_be_read_on_a_telephone_and_in_the_dark(site: Site, browser: Chromium) -> None:
    try:
        for dark in (False, True):
            browser.show(400, 800, dark=dark)
            look(site, browser, "hops")
            assert browser.evaluate("document.documentElement.scrollWidth") <= 400
            paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", paper))) < 200) is dark
        look(site, browser, theme="light")
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    finally:
        browser.show(*SIZE)
