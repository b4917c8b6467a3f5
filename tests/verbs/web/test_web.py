# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, over a recording whose names are hostile; as root, beside this host, which is measured.

One server and one browser serve all tests; each test goes to an address of its own.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import duckdb
import numpy as np
import pytest

import hopscope
from chromium import Chromium
from hopscope.errors import UsageError
from hopscope.store.trace import Trace
from hopscope.term.report_lines import json_lines
from hopscope.trace.selection import Selection
from hopscope.verbs.export.recorded import timeline
from hopscope.verbs.report.hops import hops_over_time
from hopscope.verbs.web.answers import PARTS
from hopscope.verbs.web.command import command
from tests.lab.command import HOPSCOPE, environ, start
from tests.lab.command import hopscope as run
from tests.term.browser import program
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICED = {"sched.switch", "sched.wake", "irq.enter", "irq.exit", "softirq.enter", "softirq.exit"}
RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
# Markup, an event handler, an escape sequence, the end of a line, and a change of the writing direction.
EVIL = "<img src=x onerror=pwned=1><script>pwned=1</script>'\"\x1b]0;x\x07\u202e"
CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]"
NAMES = {"threads": "comm", "symbols": "name", "devices": "name", "namespaces": "name"}
IS_ROOT = os.geteuid() == 0
STEADY = "document.querySelectorAll('section').length && !document.querySelector('[aria-busy=true]')"


@dataclass
class Site:
    """The server: its address, and what is told to who has the token."""

    child: subprocess.Popen[str]
    base: str
    token: str
    folder: Path
    recording: hopscope.Recording
    cookie: str = ""

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2].rstrip("/"))

    def send(
        self, path: str, body: object = None, *, cookie: bool = True, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of an answer; what has a body is sent as our own page would."""
        own = {"Cookie": self.cookie} if cookie else {}
        if body is not None:
            own["Origin"] = self.base.rstrip("/")
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        every = {name: value for name, value in {**own, **given}.items() if value}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), every)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def ask(self, question: dict[str, Any]) -> tuple[int, Any]:
        status, _, data = self.send("/api/ask", question)
        return status, json.loads(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording whose threads, functions, devices and host have names that would do harm."""
    folder = tmp_path_factory.mktemp("web") / "drops"
    shutil.copytree(RECORDINGS / "drops", folder)
    for table, column in NAMES.items():
        for file in (folder / table).glob("*.parquet"):
            evil = EVIL.replace("'", "''")
            rows = duckdb.sql(f"SELECT * REPLACE ({column} || '{evil}' AS {column}) FROM '{file}'")
            duckdb.from_arrow(rows.to_arrow_table()).write_parquet(str(file))
    document = json.loads((folder / "hopscope.json").read_text())
    document["host"]["name"] += EVIL
    (folder / "hopscope.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def site(hostile: Path) -> Iterator[Site]:
    live = ["--live", "-i", "0.5"] if IS_ROOT else []
    words = [*HOPSCOPE, "web", "--no-browser", *live, str(hostile)]
    child = subprocess.Popen(words, env=environ(), stdout=subprocess.PIPE, text=True)
    assert child.stdout
    line = child.stdout.readline().strip()
    base, token = line.split("#token=")
    made = Site(child, base, token, hostile, hopscope.open(hostile))
    status, headers, _ = made.send("/api/session", {"token": token}, cookie=False)
    assert status == 204
    made.cookie = headers["set-cookie"].partition(";")[0]
    processes = children(child.pid)
    try:
        yield made
    finally:
        made.recording.close()
        child.send_signal(signal.SIGINT)
        child.wait()
        child.stdout.close()
    assert child.returncode == 0
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Chromium]:
    with Chromium(program()) as opened:
        opened.show(1200, 900)
        yield opened
        # Whatever was looked at: nothing was asked of anybody else, and nothing broke or was refused by the policy.
        foreign = [url for url in opened.requested if not url.startswith((site.base, "about:", f"blob:{site.base}"))]
        assert foreign == []
        assert opened.said == []


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def look(site: Site, browser: Chromium, panel: str = "", selector: str = "tbody tr", **view: object) -> None:
    """Open the page with a view, and wait until a panel of it has something."""
    browser.open("about:blank")
    words = urlencode({"token": site.token, **view}, quote_via=quote)
    browser.open(f"{site.base}#{words}")
    browser.until(STEADY)
    if panel:
        show(browser, panel, selector)


def show(browser: Chromium, panel: str, selector: str = ".body > *:not(:empty)") -> None:
    """Scroll to a panel, which those above it push away while they are filled, until it is filled itself."""
    scrolled = f"document.getElementById('{panel}').scrollIntoView() ?? true"
    browser.until(f"({scrolled}) && {STEADY} && !!document.querySelector('#{panel} {selector}')")


def rows_of(site: Site, name: str, **options: object) -> list[dict[str, Any]]:
    """Return what the report says by itself."""
    return [json.loads(line) for line in json_lines(site.recording.report(name, **options))]


def shown_rows(browser: Chromium, selector: str) -> list[list[Any]]:
    cells = "[...row.cells].map((cell) => JSON.parse(cell.dataset.value))"
    table = f"[...document.querySelectorAll('{selector} tbody tr')].map((row) => {cells})"
    found: list[list[Any]] = browser.evaluate(table)
    return found


# ---- who may ask ----


@pytest.mark.parametrize("path", ["/api/about", "/api/events", "/api/flame.svg", "/api/download/csv"])
def test_without_the_cookie_there_is_no_data(site: Site, path: str) -> None:
    status, _, body = site.send(path, cookie=False)
    assert status == 401
    assert b"token" in body
    assert b"recorder" not in body
    assert site.send(path, cookie=False, Cookie=site.cookie[:-1] + "!")[0] == 401


def test_without_the_token_there_is_no_cookie(site: Site) -> None:
    for token in ("", site.token[:-1], None, 1, [site.token]):
        status, headers, _ = site.send("/api/session", {"token": token}, cookie=False)
        assert status == 401
        assert "set-cookie" not in headers
    status, headers, _ = site.send("/api/session", {"token": site.token}, cookie=False)
    assert (status, headers["set-cookie"].split("; ")[1:]) == (204, ["HttpOnly", "SameSite=Strict", "Path=/"])
    assert site.token not in headers["set-cookie"]


@pytest.mark.parametrize("path", ["/", "/api/about"])
def test_other_names_of_this_machine_are_refused(site: Site, path: str) -> None:
    for host in ("evil.example", f"evil.example:{site.port}", "127.0.0.1.evil.example", ""):
        assert site.send(path, Host=host or "0")[0] == 400
    assert site.send(path, Host=f"localhost:{site.port}")[0] == 200


def test_other_sites_are_refused_even_with_the_cookie(site: Site) -> None:
    question = {"ask": "report", "name": "hops"}
    other_port = f"http://127.0.0.1:{site.port - 1}"
    for origin in ("https://evil.example", "null", other_port, f"https://127.0.0.1:{site.port}"):
        assert site.send("/api/ask", question, Origin=origin)[0] == 403
        assert site.send("/api/about", Origin=origin)[0] == 403
    assert site.send("/api/ask", question, Origin="")[0] == 403
    for where in ("cross-site", "same-site"):
        assert site.send("/api/about", Sec_Fetch_Site=where)[0] == 403
    status, headers, _ = site.send("/api/about")
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]
    assert "unsafe" not in headers["content-security-policy"]


def test_nobody_else_can_reach_it_and_it_has_no_rights(site: Site) -> None:
    of_port = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines() if f":{site.port:04X} " in line]
    assert {line[1].partition(":")[0] for line in of_port if line[3] == "0A"} == {"0100007F"}
    status = [
        dict(re.findall(r"(\w+):\t(.*)", Path(f"/proc/{pid}/status").read_text())) for pid in children(site.child.pid)
    ]
    confined = [each for each in status if each["NoNewPrivs"] == "1"]
    assert len(confined) == 4  # three that read the recording, and the server, which is the last
    assert len(status) == (5 if IS_ROOT else 4)
    assert {each["CapEff"] for each in confined} == {"0" * 16}
    if IS_ROOT:
        assert {each["CapBnd"] for each in confined} == {"0" * 16}
        assert int(status[-1]["Uid"].split()[0]) == int(os.environ.get("SUDO_UID", "65534"))
        assert {each["Groups"].strip() for each in confined} == {""}


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "report", "name": "hops", "options": {"plot": "x.svg"}},
        {"ask": "report", "name": "hops", "options": {"port": [[1]]}},
        {"ask": "report", "name": "hops", "options": {"from": "1"}},
        {"ask": "report", "name": "hops", "options": []},
        {"ask": "report", "name": "../hops"},
        {"ask": "report", "name": "hops", "options": {"flow": ["--json"]}},
        {"ask": "heat", "options": {"port": ["x"]}},
        {"ask": "message", "begin_ns": "1"},
        {"ask": "timeline", "part": "all", "columns": 9},
        {"ask": "timeline", "part": "events", "columns": 0},
        {"ask": "timeline", "part": "events", "columns": 9, "from_ns": 5, "until_ns": 5},
        {"ask": "timeline", "part": "events", "columns": 9, "until_ns": 1 << 61},
        {"ask": "sql", "query": "SELECT * FROM read_text('/etc/passwd')"},
        {"ask": "sql", "query": "COPY packets TO 'x.csv'"},
        {"ask": "sql", "query": "SELECT nothing"},
        {"ask": "sql", "query": ""},
        {"ask": "__class__"},
        {},
    ],
    ids=str,
)
def test_a_wrong_question_gets_a_sentence(site: Site, question: dict[str, Any]) -> None:
    status, answer = site.ask(question)
    assert status == 400
    assert re.fullmatch(r"[^\n]{10,}", answer["error"])
    assert "not foreseen" not in answer["error"]


# ---- what is shown ----

REPORTS = {
    "hops": ("hops", {}),
    "messages": ("messages", {"limit": 20}),
    "requests": ("requests", {"limit": 20}),
    "drops": ("drops", {}),
}


@pytest.mark.parametrize("panel", REPORTS)
def test_a_panel_shows_what_the_report_says(panel: str, site: Site, browser: Chromium) -> None:
    look(site, browser, panel)
    name, options = REPORTS[panel]
    expected = rows_of(site, name, **options)
    shown = shown_rows(browser, f"#{panel}")
    titles = browser.evaluate(f"[...document.querySelectorAll('#{panel} th')].map((each) => each.innerText)")
    assert len(titles) >= 4
    assert expected
    assert len(shown) == len(expected)
    for cells, row in zip(shown, expected, strict=True):
        known = [re.sub("\u202e", "?", each) if isinstance(each, str) else each for each in row.values()]
        assert [cell for cell in cells if cell not in known] == []


def test_the_heat_map_is_the_histograms_of_the_report(site: Site) -> None:
    status, answer = site.ask({"ask": "heat", "columns": 50})
    assert status == 200
    with Trace(site.folder) as trace:
        bounds_s, found = hops_over_time(trace, Selection(), 50)
    assert answer["bounds_s"] == bounds_s
    assert [hop["hop"] for hop in answer["hops"]] == [f"{before} → {point}" for (before, point), _ in found]
    for hop, (_, parts) in zip(answer["hops"], found, strict=True):
        assert hop["cells"] == [
            [column, slot, int(count)]
            for column, part in enumerate(parts)
            for slot, count in enumerate(part.counts)
            if count
        ]
        assert hop["p95_ns"] == [part.percentile(95) for part in parts]


TIMELINE = {"events": "timeline", "activity": "details", "messages": "details"}
DRAWN = "document.querySelector('.timeline').dataset.state === 'shown'"


@pytest.mark.parametrize("part", TIMELINE)
def test_each_column_of_the_timeline_counts_what_the_export_has_there(part: str, site: Site) -> None:
    with Trace(site.folder) as trace:
        found = timeline(trace, Selection(), limit=None, parts=PARTS[part])
        started_ns = found.started_ns
    texts = found.names.texts
    marks = np.sort(np.concatenate([
        each.time_ns for each in found.marks if len(each) and texts[int(each.category[0])] != "arrow"
    ] or [[]]))  # fmt: skip
    spans = [(begin, end) for each in found.slices for begin, end in zip(each.begin_ns, each.end_ns, strict=True)]
    whole = site.ask({"ask": TIMELINE[part], "part": part, "columns": 700})[1]
    first, last = whole["extent_ns"]
    assert len(marks) + len(spans) > 30
    for from_ns, until_ns, columns in (
        (first, last, 700), (first, last, 3), (first, first + (last - first) // 3 + 1, 57), (last - 1000, last, 9),
    ):  # fmt: skip
        question = {"ask": TIMELINE[part], "part": part, "columns": columns, "from_ns": from_ns, "until_ns": until_ns}
        status, view = site.ask(question)
        assert status == 200
        edges = [started_ns + from_ns + -(-at * (until_ns - from_ns) // columns) for at in range(columns + 1)]
        per_column = np.bincount(view["marks"]["column"], view["marks"]["count"], minlength=columns)
        assert per_column.tolist() == np.diff(np.searchsorted(marks, edges)).tolist()
        inside = [begin for begin, end in spans if end > edges[0] and begin < edges[-1]]
        assert len(view["spans"]["strip"]) + sum(view["spans"]["cell_count"]) == len(inside)
        lengths = zip(view["spans"]["at"], view["spans"]["length"], strict=True)
        assert {started_ns + from_ns + at for at, _ in lengths} <= set(inside)


def test_the_timeline_has_an_arrow_for_each_message(site: Site) -> None:
    known = rows_of(site, "messages")
    view = site.ask({"ask": "details", "part": "messages", "columns": 1})[1]
    arrows = view["arrows"]
    ends = [
        (view["from_ns"] + begin, view["from_ns"] + end)
        for begin, end in zip(arrows["at"][0], arrows["at"][3], strict=True)
        if begin is not None and end is not None
    ]
    read = [(row["begin_ns"], row["begin_ns"] + row["total_ns"]) for row in known if row["sender"] and row["reader"]]
    assert sorted(ends) == sorted(read)
    assert len(read) > 10
    assert sum(arrows["count"]) == len(known)


def test_the_timeline_shows_one_message_with_its_events_and_measures_it(site: Site, browser: Chromium) -> None:
    slowest = rows_of(site, "messages", limit=1)[0]
    begin, end = slowest["begin_ns"], slowest["begin_ns"] + slowest["total_ns"] + 1
    window = {"timeline-from": begin, "timeline-until": end, "timeline-a": begin, "timeline-b": end - 1}
    look(site, browser, "timeline", "tbody tr", **window)
    browser.until(DRAWN)
    expected = rows_of(site, "events", from_=begin / 1e9, until=end / 1e9)
    listed = shown_rows(browser, "#timeline")
    started_ns = int(site.ask({"ask": "timeline", "part": "events", "columns": 1})[1]["started_ns"])
    at = [f"{(row['time_ns'] - started_ns) / 1e9:.9f} s" for row in expected]
    assert [row[0] for row in listed[: len(at)]] == at[: len(listed)]
    label = browser.evaluate("document.querySelector('.timeline canvas').getAttribute('aria-label')")
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
    label = browser.evaluate("document.querySelector('.timeline canvas').getAttribute('aria-label')")
    assert f"{len(rows_of(site, 'messages'))} messages with arrows" in label
    rows = int(label.split()[2])
    look(site, browser, "timeline", "tbody tr", **window, **{"timeline-used": 1})
    browser.until(DRAWN)
    label = browser.evaluate("document.querySelector('.timeline canvas').getAttribute('aria-label')")
    assert 0 < int(label.split()[2]) < rows


def test_a_dragged_period_is_that_of_all_panels(site: Site, browser: Chromium) -> None:
    look(site, browser, "heat", ".heat canvas")
    before = len(rows_of(site, "hops"))
    box = browser.evaluate(
        "((box) => [box.x, box.y, box.width])(document.querySelector('.heat canvas').getBoundingClientRect())"
    )
    for kind, part in (("mousePressed", 0.4), ("mouseMoved", 0.7), ("mouseReleased", 0.7)):
        browser.call(
            "Input.dispatchMouseEvent", type=kind, x=box[0] + part * box[2], y=box[1] + 30, button="left", buttons=1,
            clickCount=1,
        )  # fmt: skip
    window = browser.until("new URLSearchParams(location.hash.slice(1)).get('until') && location.hash")
    chosen = dict(re.findall(r"(from|until)=([\d.]+)", window))
    show(browser, "hops", "tbody tr")
    expected = rows_of(site, "hops", from_=float(chosen["from"]), until=float(chosen["until"]))
    assert sum(row["count"] for row in expected) > 0
    assert len(expected) <= before
    assert [row[1] for row in shown_rows(browser, "#hops")] == [row["count"] for row in expected]
    command = browser.evaluate("document.querySelector('#hops .copy').title")
    done = run(*command.split()[1:-1], "--json", site.folder)
    assert [json.loads(line)["count"] for line in done.stdout.splitlines()] == [row["count"] for row in expected]


def test_a_period_can_be_selected_by_keys_alone(site: Site, browser: Chromium) -> None:
    look(site, browser, "heat", ".heat canvas")
    browser.evaluate("document.querySelector('.heat canvas').focus()")
    for key, shift in (("ArrowRight", 0), ("ArrowRight", 0), ("PageDown", 8), ("Enter", 0)):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=shift)
    browser.until("location.hash.includes('from=') && location.hash.includes('until=')")


def test_a_message_is_told_with_its_stages_and_cause(site: Site, browser: Chromium) -> None:
    slowest = rows_of(site, "messages", limit=1)[0]
    look(site, browser, "messages", ".explained p", message=slowest["begin_ns"])
    sentence = browser.evaluate("document.querySelector('#messages .explained p').textContent")
    command = browser.evaluate("document.querySelector('#messages .explained .copy').title")
    said = json.loads(run(*command.split()[1:-1], "--json", site.folder).stdout)
    assert said["causes"][0]["sentence"] in sentence
    stages = browser.evaluate(
        "[...document.querySelectorAll('.waterfall tbody tr')].map((row) => row.cells[3].innerText)"
    )
    assert slowest["blame"] in ", ".join(stages)


def test_two_periods_are_compared_as_the_report_does(site: Site, browser: Chromium) -> None:
    first, second = {"until": 1.0}, {"second-from": 1.0}
    look(site, browser, "compare", ".report", **first, **second)
    options = {name.replace("-", "_"): value for name, value in {**first, **second}.items()}
    report = site.recording.report("compare", other=site.recording, **options)
    assert len(shown_rows(browser, "#compare")) == len(report)
    assert list(report.notes) == browser.evaluate(
        "[...document.querySelectorAll('#compare .notes p')].map((each) => each.textContent)"
    )


def test_a_query_is_answered_and_an_export_is_the_command_s(site: Site, browser: Chromium, tmp_path: Path) -> None:
    look(site, browser, "sql", sql="SELECT count(*) AS n FROM packets")
    assert shown_rows(browser, "#sql") == [[len(site.recording["packets"])]]
    status, headers, data = site.send(f"/api/download/csv?options={quote(json.dumps({'until': 1.0}))}")
    run("export", "csv", "--until=1.0", site.folder, "-o", tmp_path / "a.csv")
    assert (status, data) == (200, (tmp_path / "a.csv").read_bytes())
    assert headers["content-disposition"] == 'attachment; filename="hopscope.csv"'
    assert site.send("/api/download/perfetto")[2][:1] == b"\n"
    assert site.send("/api/download/ctf")[0] == 400


def test_names_of_others_are_text_and_nothing_else(site: Site, browser: Chromium) -> None:
    slowest = rows_of(site, "messages", limit=1)[0]
    look(site, browser, message=slowest["begin_ns"], stacks=1, sql="SELECT comm FROM threads", report="events", flow="")
    panels = browser.evaluate("[...document.querySelectorAll('section')].map((each) => each.id)")
    for panel in panels:
        show(browser, panel)
    show(browser, "drops", "iframe")
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
    status, headers, graph = site.send("/api/flame.svg")
    assert status == 200
    assert headers["content-security-policy"].startswith(
        "sandbox allow-scripts; default-src 'none'; script-src 'sha256-"
    )
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
        browser.show(1200, 900)


@pytest.mark.root
def test_this_host_is_shown_beside_the_recording(site: Site, browser: Chromium) -> None:
    look(site, browser, show="live")
    browser.until(
        "document.querySelectorAll('#live-hops tbody tr').length && !!document.querySelector('#live-heat canvas')"
    )
    hops = {row[0] for row in shown_rows(browser, "#live-hops")}
    assert "rx.tcp_total" in hops  # of this page's own requests
    assert browser.until("document.querySelector('#live-now').textContent.includes('of a CPU: hopscope')")
    streams = [url for url in browser.requested if url.endswith("/api/events")]
    browser.until("document.querySelectorAll('#live-now li').length === 6")
    assert [url for url in browser.requested if url.endswith("/api/events")] == streams


# ---- what cannot be ----


def test_what_cannot_be_served_is_a_sentence(site: Site, tmp_path: Path) -> None:
    for words, sentence in (
        ((tmp_path,), "is not a trace"),
        (("--port", site.port, site.folder), f"Port {site.port} of 127.0.0.1 cannot be used"),
    ):
        done = run("web", "--no-browser", *words)
        assert done.returncode not in {0, 77}
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1


def test_who_lacks_the_server_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopscope.verbs.web.command.find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(UsageError, match=r"needs Starlette and uvicorn. Install them: pip install 'hopscope\[web\]'"):
        command.callback(trace=None, other=None, live=False, interval=1.0, port=0, no_browser=True)


def test_it_ends_when_a_process_behind_it_does(tmp_path: Path) -> None:
    child = start("web", "--no-browser", shutil.copytree(RECORDINGS / "udp", tmp_path / "udp"))
    assert child.stdout
    assert child.stderr
    child.stdout.readline()
    os.kill(children(child.pid)[0], signal.SIGKILL)
    assert child.wait() == 1
    assert "The process that reads the recording has ended" in child.stderr.read()
    eventually(
        lambda: (
            not [each for each in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in each.read_bytes()]
            or None
        )
    )
