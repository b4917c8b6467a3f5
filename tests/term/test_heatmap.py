# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np

from hopscope.model.histogram import SLOTS, slot_of
from hopscope.term.heatmap import Heat, render_heatmap

_SVG = "{http://www.w3.org/2000/svg}"


def test_each_cell_says_when_how_many_and_how_long() -> None:
    counts = np.zeros((4, SLOTS), np.int64)
    counts[0, slot_of(1_000)], counts[3, slot_of(1_000_000)] = 7, 1
    root = ET.fromstring(render_heatmap("a <b>\x1b", [0, 0.5, 1, 1.5, 2], [Heat("x → y", counts)]))  # noqa: S314 # our own
    cells = [each for each in root.iter(f"{_SVG}rect") if each.get("class") == "cell"]
    said = [cell.findtext(f"{_SVG}title") or "" for cell in cells]
    assert [each.partition(" took")[0] for each in said] == [
        "0.000 s to 0.500 s: 7 packets",
        "1.500 s to 2.000 s: 1 packet",
    ]
    first, last = cells
    assert float(first.get("x", 0)) < float(last.get("x", 0))
    assert float(first.get("y", 0)) > float(last.get("y", 0))
    assert float(first.get("fill-opacity", 0)) > float(last.get("fill-opacity", 0))
    assert "a <b>?" in {each.text for each in root.iter(f"{_SVG}text")}
    assert not re.search("href|url|script", render_heatmap("", [0, 1], [Heat("x", counts[:1])]))


def test_nothing_is_a_picture_too() -> None:
    assert "No packet took a hop." in render_heatmap("t", [0.0], [])
