# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.stacks import Stack
from hopscope.term.folded import render_folded

if TYPE_CHECKING:
    from collections.abc import Callable


def test_lines_look_as_agreed(stacks: list[Stack], golden: Callable[[str, str], None]) -> None:
    golden("folded", render_folded(stacks).rstrip("\n"))


def test_lines_are_sorted_and_equal_stacks_are_one(stacks: list[Stack]) -> None:
    lines = render_folded(stacks).splitlines()
    assert lines == sorted(lines)
    assert next(line for line in lines if "udp_rcv" in line).endswith(";udp_rcv 3")
    assert render_folded(stacks[::-1]) == render_folded(stacks)
    assert render_folded([]) == ""


def test_names_cannot_make_lines_or_frames_of_their_own() -> None:
    text = render_folded([Stack("send", ("a;b",), 1, "two words\n;forged 7")])
    assert text == "send;two words ,forged 7;a,b 1\n"


NAMES = st.text(st.characters(codec="utf-8"), max_size=5)


@given(st.lists(st.builds(Stack, NAMES, st.lists(NAMES, max_size=4).map(tuple), st.integers(0, 9), NAMES)))
def test_folding_keeps_every_sample(stacks: list[Stack]) -> None:
    lines = render_folded(stacks).split("\n")[:-1]
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(stack.samples for stack in stacks)
