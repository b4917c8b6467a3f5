# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.breakdown import breakdown
from hopscope.model.stacks import Stack
from hopscope.term.category_colours import COLOURS, NEUTRAL
from hopscope.term.flamegraph import render_flamegraph

if TYPE_CHECKING:
    from collections.abc import Callable

SVG = "{http://www.w3.org/2000/svg}"
TITLE = "hopscope cpu"


class Frame:
    """A frame as it is drawn."""

    def __init__(self, element: ET.Element) -> None:
        (rect,) = element.iter(f"{SVG}rect")
        self.name, *self.lines = (element.findtext(f"{SVG}title") or "").split("\n")
        self.text = element.findtext(f"{SVG}text")
        self.start, self.samples, self.level = (int(element.get(f"data-{key}", "")) for key in ("x", "n", "level"))
        self.x, self.y, self.width, self.height = (float(rect.get(k, "")) for k in ("x", "y", "width", "height"))
        self.fill = rect.get("fill")


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


def frames(stacks: list[Stack]) -> list[Frame]:
    root = parsed(render_flamegraph(TITLE, stacks))
    return [Frame(g) for g in root.iter(f"{SVG}g") if "frame" in (g.get("class") or "").split()]


def texts(text: str) -> list[str]:
    return [element.text or "" for element in parsed(text).iter(f"{SVG}text")]


def named(found: list[Frame], name: str) -> Frame:
    (frame,) = [frame for frame in found if frame.name == name]
    return frame


def test_picture_looks_as_agreed(stacks: list[Stack], golden: Callable[[str, str], None]) -> None:
    text = render_flamegraph(TITLE, stacks)
    without_script = re.sub(r"(<script>|<style>).*?(</script>|</style>)", r"\1\2", text, flags=re.DOTALL)
    golden("flamegraph", without_script.rstrip("\n"))


def test_picture_needs_nothing_else(stacks: list[Stack]) -> None:
    text = render_flamegraph(TITLE, stacks)
    assert set(re.findall(r"https?://[^\s\"']*", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
    }
    assert not re.search(r"url\(|href|@import|<image|\bsrc=|\bfetch\(|XMLHttpRequest", text)


def test_widths_are_samples_and_callers_are_below(stacks: list[Stack]) -> None:
    found = frames(stacks)
    root = named(found, "all")
    assert root.samples == sum(stack.samples for stack in stacks)
    for frame in found:
        assert frame.width == pytest.approx(frame.samples * root.width / root.samples, abs=0.01)
        assert frame.x == pytest.approx(root.x + frame.start * root.width / root.samples, abs=0.01)
        assert frame.y == root.y - 16 * frame.level
    hook = named(found, "nf_hook_slow")
    assert hook.samples == 277
    below = named(found, "ip_rcv")
    assert (below.level, below.samples) == (hook.level - 1, 277)


def test_no_two_frames_of_a_level_overlap(stacks: list[Stack]) -> None:
    found = frames(stacks)
    for level in {frame.level for frame in found}:
        row = sorted((frame.start, frame.start + frame.samples) for frame in found if frame.level == level)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(row))


def test_first_level_is_the_parts_in_their_order(stacks: list[Stack]) -> None:
    found = sorted((frame for frame in frames(stacks) if frame.level == 1), key=lambda frame: frame.start)
    assert [frame.name for frame in found] == ["irq", "net_rx", "send", "io_uring"]
    assert {frame.fill for frame in found} == {NEUTRAL}


def test_groups_are_the_second_level_where_there_are_any(stacks: list[Stack]) -> None:
    assert [frame.name for frame in frames(stacks) if frame.level == 2 and frame.fill == NEUTRAL] == [
        "dns/日本",
        "nginx",
    ]


def test_a_frame_has_the_colour_of_a_stack_that_ends_there(stacks: list[Stack]) -> None:
    found = frames(stacks)
    for name, category in (
        ("veth_poll", "driver_poll"),
        ("bpf_prog_6deef7357e7b4530_count", "xdp"),
        ("nft_do_chain", "netfilter"),
        ("nf_conntrack_in", "conntrack"),
        ("_raw_spin_lock", "locks"),
        ("_copy_from_iter", "copy"),
        ("unheard_of", "other"),
    ):
        assert named(found, name).fill == COLOURS[category]


def test_a_tooltip_has_samples_and_both_percentages(stacks: list[Stack]) -> None:
    found = frames(stacks)
    assert named(found, "nft_do_chain").lines == ["200 samples, 19.4%, 33.7% of net_rx", "netfilter nft prerouting"]
    assert named(found, "send").lines == ["430 samples, 41.7%"]
    assert named(found, "unheard_of").lines == ["3 samples, 0.3%, 100.0% of io_uring"]


def test_the_legend_has_the_share_of_each_category(stacks: list[Stack]) -> None:
    root = parsed(render_flamegraph(TITLE, stacks))
    keys = [g for g in root.iter(f"{SVG}g") if g.get("class") == "key"]
    total = sum(stack.samples for stack in stacks)
    samples: dict[str, int] = {}
    for share in breakdown(stacks, {}):
        samples[share.category] = samples.get(share.category, 0) + share.samples
    assert {key.get("data-category"): key.findtext(f"{SVG}text") for key in keys} == {
        category: f"{category.replace('_', ' ')} {n / total:.1%}" for category, n in samples.items()
    }
    assert keys[0].get("data-category") == "copy"


def test_own_programs_are_named_in_the_tooltip(stacks: list[Stack]) -> None:
    text = render_flamegraph(TITLE, stacks, ("count",))
    assert "bpf hopscope" in text
    assert "xdp" not in text


def test_frames_too_narrow_to_see_are_left_out_and_counted() -> None:
    many = [Stack("send", ("tcp_sendmsg",), 100_000), *(Stack("send", ("a", f"b{n}"), 1) for n in range(50))]
    text = render_flamegraph(TITLE, many)
    assert "100,050 samples; 50 frames narrower than 0.1 px not shown" in texts(text)
    assert named(frames(many), "a").samples == 50
    assert "left out" not in render_flamegraph(TITLE, many[:1])


def test_names_are_cut_to_their_frame(stacks: list[Stack]) -> None:
    found = frames(stacks)
    assert named(found, "process_backlog").text == "process_backlog"
    assert named(found, "nf_conntrack_in").text == "nf_conntra…"
    assert named(found, "irq").text is None
    for frame in found:
        assert len(frame.text or "") * 7.25 <= frame.width


def test_names_cannot_break_out() -> None:
    name = '</title><script>alert(1)</script>]]>&"\x1b[31m\x00'
    text = render_flamegraph(name, [Stack("send", (name,), 1, name)])
    assert sum(1 for _ in parsed(text).iter(f"{SVG}script")) == 1
    assert named(frames([Stack("send", (name,), 1)]), name.replace("\x1b", "?").replace("\x00", "?"))
    assert "\x1b" not in text


def test_no_samples_make_a_picture_that_says_so() -> None:
    text = render_flamegraph(TITLE, [])
    assert "0 samples" in texts(text)
    assert "<script" not in text


@given(
    st.lists(
        st.builds(
            Stack,
            st.sampled_from(["send", "irq"]),
            st.lists(st.sampled_from("abc"), max_size=4).map(tuple),
            st.integers(0, 5),
        )
    )
)
def test_picture_is_the_same_for_the_same_samples_in_any_order(stacks: list[Stack]) -> None:
    assert render_flamegraph(TITLE, stacks[::-1]) == render_flamegraph(TITLE, stacks)
