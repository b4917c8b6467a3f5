# SPDX-License-Identifier: Apache-2.0
"""A server of the page, who asks it as a browser does, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from chromium import Chromium
from tests.lab.command import HOPSCOPE, environ, printed
from tests.term.browser import program

if TYPE_CHECKING:
    from collections.abc import Iterator

# Low: what is not seen is not computed.
SIZE = (1200, 450)
RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


@dataclass
class Site:
    """A running server, with its address and the token that gives access to it."""

    child: subprocess.Popen[str]
    base: str
    token: str
    cookie: str = ""

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2].rstrip("/"))

    @property
    def server(self) -> int:
        """The PID of the process that talks to browsers: the last one."""
        return children(self.child.pid)[-1]

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


@contextlib.contextmanager
def serving(*words: object) -> Iterator[Site]:
    """Serve the page, as the command line says; give who has logged in."""
    argv = [*HOPSCOPE, "web", "--no-browser", *map(str, words)]
    with subprocess.Popen(argv, env=environ(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        base, token = child.stdout.readline().strip().split("#token=")
        site = Site(child, base, token)
        status, headers, _ = site.send("/api/session", {"token": token}, cookie=False)
        assert status == 204
        site.cookie = headers["set-cookie"].partition(";")[0]
        own = children(child.pid)
        processes = [*own, *(each for pid in own for each in children(pid))]
        try:
            yield site
        finally:
            child.send_signal(signal.SIGINT)
            child.wait()
        assert child.returncode == 0
        assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]


@contextlib.contextmanager
def looking(site: Site) -> Iterator[Chromium]:
    """Open a browser, which has asked nobody else at the end, and was neither refused anything nor broken."""
    with Chromium(program()) as opened:
        opened.show(*SIZE)
        yield opened
        foreign = [url for url in opened.requested if not url.startswith((site.base, "about:", f"blob:{site.base}"))]
        assert foreign == []
        assert opened.said == []


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def printed_json(command: str, folder: Path) -> list[Any]:
    """Return what a command that the page gives prints of a recording with --json."""
    return [json.loads(line) for line in printed(*shlex.split(command)[1:-1], "--json", folder).splitlines()]


def look(site: Site, browser: Chromium, panel: str = "", selector: str = "tbody tr", **view: object) -> None:
    """Look at a view, in the page that is open if there is one, and wait until a panel of it has something."""
    here = f"location.href.startsWith('{site.base}')"
    words = urlencode({**({"panel": panel} if panel else {}), **view, "asked": len(browser.requested)}, quote_via=quote)
    if browser.evaluate(here):
        changed = "addEventListener('hashchange', done, {once: true})"
        browser.evaluate(f"new Promise((done) => {{ {changed}; location.hash = {json.dumps(words)}; }}).then(() => 0)")
    else:
        browser.open(f"{site.base}#token={site.token}&{words}")
        browser.until(f"{here} && !!document.querySelector('section')")
    if panel:
        show(browser, panel, selector)


def show(browser: Chromium, panel: str, selector: str = ".body > *:not(:empty)") -> None:
    """Scroll to a panel, which those above it push away while they are filled, until it is filled itself."""
    scrolled = f"document.getElementById('{panel}').scrollIntoView({{behavior: 'instant'}}) ?? true"
    browser.until(f"({scrolled}) && !!document.querySelector('#{panel}[aria-busy=false] {selector}')")


def shown_rows(browser: Chromium, selector: str) -> list[list[Any]]:
    cells = "[...row.cells].map((cell) => JSON.parse(cell.dataset.value))"
    table = f"[...document.querySelectorAll('{selector} tbody tr')].map((row) => {cells})"
    found: list[list[Any]] = browser.evaluate(table)
    return found
