# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hopscope.term.flamegraph import render_flamegraph
from tests.term.browser import ask

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.stacks import Stack

# What a user can do, and what is to be seen then. An element is clicked where it is on the screen.
HELPERS = """
const all = [...document.querySelectorAll(".frame")];
const nameOf = (frame) => frame.querySelector("title").textContent.split("\\n")[0];
const named = (name) => all.find((frame) => nameOf(frame) === name);
const at = (element) => {
  const { x, y, width, height } = element.getBoundingClientRect();
  return document.elementFromPoint(x + width / 2, y + height / 2);
};
const send = (element, event) => at(element).dispatchEvent(event);
const click = (element) => send(element, new MouseEvent("click", { bubbles: true }));
const type = (words) => {
  const box = document.getElementById("search");
  box.value = words;
  box.dispatchEvent(new Event("input"));
};
const shown = (element) => getComputedStyle(element).display !== "none";
const widths = () => Object.fromEntries(
  all.filter(shown).map((frame) => [nameOf(frame), Math.round(frame.getBoundingClientRect().width)]));
const hits = () => all.filter((frame) => frame.classList.contains("hit")).map(nameOf).sort();
const matched = () => document.getElementById("matched").textContent;
const text = (name) => named(name).querySelector("text")?.textContent ?? "";
"""


@pytest.fixture
def picture(stacks: list[Stack]) -> str:
    return render_flamegraph("hopscope cpu", stacks)


def answer(picture: str, question: str, folder: Path) -> Any:  # noqa: ANN401 - whatever the script answers
    return ask(picture, HELPERS + question, folder)


def test_search_marks_what_matches_and_counts_it_once(picture: str, tmp_path: Path) -> None:
    found = answer(
        picture,
        """
        type("^nf_|NFT_");
        const first = [hits(), matched(), getComputedStyle(named("nf_hook_slow").querySelector("rect")).fill];
        type("(");
        const broken = [hits(), matched()];
        type("");
        return [...first, ...broken, hits(), matched()];
        """,
        tmp_path,
    )
    # 277 of 1031 samples have nf_hook_slow, which the others are called from.
    names = ["nf_conntrack_in", "nf_hook_slow", "nft_do_chain", "nft_do_chain_ipv4"]
    assert found == [names, "matched 26.9%", "rgb(230, 0, 230)", [], "matched 0.0%", [], ""]


def test_click_zooms_and_reset_goes_back(picture: str, tmp_path: Path) -> None:
    before, zoomed, labels, share, reset, after = answer(
        picture,
        """
        const before = widths();
        click(named("ip_rcv"));
        const zoomed = widths();
        const labels = [text("nf_conntrack_in"), text("nft_do_chain")];
        type("conntrack");
        const share = matched();
        const reset = document.getElementById("reset");
        const offered = shown(reset);
        click(reset);
        return [before, zoomed, labels, share, [offered, shown(reset)], widths()];
        """,
        tmp_path,
    )
    assert before == after
    assert {"all", "net_rx", "ip_rcv", "nf_hook_slow"} <= zoomed.keys()
    assert not {"send", "irq", "veth_poll", "ip_local_deliver"} & zoomed.keys()
    assert {zoomed[name] for name in ("all", "net_rx", "__napi_poll", "ip_rcv", "nf_hook_slow")} == {1180}
    assert zoomed["nf_conntrack_in"] == pytest.approx(1180 * 77 / 277, abs=1)
    assert labels == ["nf_conntrack_in", "nft_do_chain"]
    assert share == "matched 27.8%"
    assert reset == [True, False]


def test_a_frame_without_a_label_gets_one_when_there_is_room(picture: str, tmp_path: Path) -> None:
    assert answer(
        picture, 'const before = text("irq"); click(named("irq")); return [before, text("irq")];', tmp_path
    ) == ["", "irq"]


def test_the_line_below_tells_about_the_frame_under_the_pointer(picture: str, tmp_path: Path) -> None:
    during, after = answer(
        picture,
        """
        const frame = named("nft_do_chain");
        const detail = document.getElementById("detail");
        frame.dispatchEvent(new MouseEvent("mouseenter"));
        const during = detail.textContent;
        frame.dispatchEvent(new MouseEvent("mouseleave"));
        return [during, detail.textContent];
        """,
        tmp_path,
    )
    assert during.startswith("nft_do_chain  ·  200 samples, 19.4%, 33.7% of net_rx  ·  netfilter")
    assert after == ""


def test_a_key_of_the_legend_shows_its_category(picture: str, tmp_path: Path) -> None:
    bright, again = answer(
        picture,
        """
        const key = document.querySelector('.key[data-category="netfilter"]');
        const bright = () => all.filter((frame) => getComputedStyle(frame).opacity === "1").map(nameOf).sort();
        click(key);
        const first = bright();
        click(key);
        return [first, bright().length === all.length];
        """,
        tmp_path,
    )
    assert bright == ["nf_hook_slow", "nft_do_chain", "nft_do_chain_ipv4"]
    assert again


def test_keys_find_and_leave(picture: str, tmp_path: Path) -> None:
    assert answer(
        picture,
        """
        const press = (key, more) => {
          const event = new KeyboardEvent("keydown", { key, cancelable: true, ...more });
          window.dispatchEvent(event);
          return event.defaultPrevented;
        };
        const taken = press("f", { ctrlKey: true });
        const focused = document.activeElement.id;
        type("tcp");
        click(named("send"));
        press("Escape");
        return [taken, focused, hits(), all.every(shown)];
        """,
        tmp_path,
    ) == [True, "search", [], True]
