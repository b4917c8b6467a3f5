# SPDX-License-Identifier: Apache-2.0
"""This host on the page, in a real browser, beside a recording of TCP's state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import hopscope
from tests.lab.command import hopscope as run
from tests.verbs.web.served import look, looking, serving, show, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chromium import Chromium
    from tests.verbs.web.served import Site

pytestmark = pytest.mark.root
# Sends and receives over one TCP connection of this host.
TRANSFER = """
import socket, threading
listening = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(listening.getsockname())
receiver, _ = listening.accept()
def receive():
    while receiver.recv(1 << 16):
        pass
thread = threading.Thread(target=receive)
thread.start()
for _ in range(100):
    sender.sendall(bytes(20_000))
sender.close()
thread.join()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hopscope.Recording]:
    folder = tmp_path_factory.mktemp("tcp") / "trace"
    done = run("record", "-P", "tcp", "-o", folder, "--", sys.executable, "-c", TRANSFER)
    assert done.returncode == 0, done.stderr
    with hopscope.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def site(recording: hopscope.Recording) -> Iterator[Site]:
    with serving("--live", "-i", "0.5", recording.path) as made:
        yield made


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Chromium]:
    with looking(site) as opened:
        yield opened


def test_a_connection_is_shown_over_time(site: Site, browser: Chromium, recording: hopscope.Recording) -> None:
    flow = max(recording.report("tcp").named_rows(), key=lambda row: int(row["acked_bytes"] or 0))
    look(site, browser, "tcp")
    row = (
        f"[...document.querySelectorAll('#tcp tbody tr')].find((row) => row.innerText.includes('{flow['flow_name']}'))"
    )
    browser.evaluate(f"{row}.click()")
    browser.until("document.querySelectorAll('#tcp .chart').length === 4")
    history = recording.report("tcp", flow=[flow["flow_name"]], history=True, limit=5000)
    rows = shown_rows(browser, "#tcp details")
    assert len(rows) == len(history) > 10
    assert flow["acked_bytes"] in [cell for row in shown_rows(browser, "#tcp .body > div:first-child") for cell in row]
    points = "document.querySelector('#tcp .chart path.line-1').getAttribute('d').match(/[ML]/g).length"
    assert browser.evaluate(points) == sum(row["cwnd"] is not None for row in history.named_rows())


def test_this_host_is_shown_beside_the_recording(site: Site, browser: Chromium) -> None:
    look(site, browser, "live-heat", "canvas", show="live")
    show(browser, "live-hops", "tbody tr")
    hops = {row[0] for row in shown_rows(browser, "#live-hops")}
    assert "rx.tcp_total" in hops  # of this page's own requests
    show(browser, "live-now", "li")
    assert browser.until("document.querySelector('#live-now').textContent.includes('of a CPU: hopscope')")
    streams = [url for url in browser.requested if url.endswith("/api/events")]
    browser.until("document.querySelectorAll('#live-now li').length === 6")
    assert [url for url in browser.requested if url.endswith("/api/events")] == streams


def test_cpu_time_can_be_shown_by_process(site: Site, browser: Chromium) -> None:
    look(site, browser, "live-cpu", show="live")
    choose = "(choice) => { choice.value = 'process'; choice.dispatchEvent(new Event('change')); return true; }"
    browser.evaluate(f"({choose})(document.querySelector('#live-cpu select'))")
    # The server's own process takes part in networking, as this page asks it.
    browser.until(f"document.querySelector('#live-cpu').innerText.includes('({site.server})')")


def test_what_is_measured_can_be_narrowed(site: Site, browser: Chromium) -> None:
    look(site, browser, "live-now", "li", show="live")

    def apply(text: str) -> None:
        browser.evaluate(
            "((form) => { form.querySelector('input').value = "
            f"'{text}'; form.requestSubmit(); return true; }})(document.querySelector('#live-now form'))"
        )

    apply("--port 1")  # nobody uses it
    browser.until("document.querySelector('#live-now input').value === '--port=1'")
    browser.until("document.querySelector('#live-now').innerText.includes('no packets')")
    for wrong, sentence in (
        ("--port x", "is not a valid integer"),
        ("--netns /proc/1/ns/net", "is a path"),
        ("--output /tmp/x", "No such option"),
    ):
        apply(wrong)
        browser.until(f"document.querySelector('#said').textContent.includes('{sentence}')")
    apply("")
    browser.until("document.querySelector('#live-now input').value === ''")
    assert site.send("/api/measure", {"only": "x" * 3000})[0] == 400
    assert site.send("/api/measure", {"only": ""}, cookie=False)[0] == 401
