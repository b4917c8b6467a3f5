# SPDX-License-Identifier: Apache-2.0
"""This host on the page, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.verbs.web.served import RECORDINGS, look, looking, serving, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chromium import Chromium
    from tests.verbs.web.served import Site

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving("--live", "-i", "0.5", RECORDINGS / "udp") as made:
        yield made


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Chromium]:
    with looking(site) as opened:
        yield opened


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
