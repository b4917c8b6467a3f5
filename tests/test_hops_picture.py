# SPDX-License-Identifier: Apache-2.0
"""The picture of a packet's path: every hop of rx and tx is in it, and the file is what the script draws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import draw_hops
from hopscope.verbs.rx.hops import HOPS as RX
from hopscope.verbs.tx.hops import HOPS as TX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.live.hops import Hop


def height_of(name: str) -> float:
    """Return where a hop's name is in the picture, by the line that has it."""
    (line,) = re.findall(rf'.* y="([\d.]+)" [^>]*>(?:[a-z_.]+  )?{re.escape(name)}(?:  [a-z_.]+)?<', draw_hops.draw())
    return float(line)


def test_the_file_is_what_the_script_draws() -> None:
    assert draw_hops.FILE.read_text() == draw_hops.draw()


@pytest.mark.parametrize("hops", [RX, TX], ids=["rx", "tx"])
def test_every_hop_is_drawn_once(hops: Sequence[Hop]) -> None:
    kind = hops[0].name.partition(".")[0]
    drawn = re.findall(rf"\b{kind}\.\w+", "\n".join(re.findall(r"<text[^>]*>([^<]*)<", draw_hops.draw())))
    assert sorted(drawn) == sorted(hop.name for hop in hops)


@pytest.mark.parametrize("hops", [RX, TX], ids=["rx", "tx"])
def test_hops_of_a_chain_are_in_order(hops: Sequence[Hop]) -> None:
    """Received packets come from below, sent ones go down."""
    sign = -1 if hops is RX else 1
    for chain in {hop.chain for hop in hops if hop.chain}:
        heights = [sign * height_of(hop.name) for hop in hops if hop.chain == chain]
        assert heights == sorted(heights)


def test_the_picture_is_readable_on_a_dark_page() -> None:
    light, dark = re.split(r"@media \(prefers-color-scheme: dark\)", draw_hops.draw())
    for name in (".paper", ".band", ".text", ".layer", ".tx", ".rx"):
        colours = [re.search(rf"{re.escape(name)} {{ fill: (#\w{{6}})", part) for part in (light, dark)]
        assert all(colours)
        assert len({found[1] for found in colours if found}) == 2
