# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from hopscope.model.cdf import Curve
from hopscope.model.histogram import Histogram
from hopscope.term.cdf import verdicts
from hopscope.term.cdf_svg import render_svg

if TYPE_CHECKING:
    from collections.abc import Callable

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


def texts(text: str) -> list[str]:
    return [element.text or "" for element in parsed(text).iter(f"{SVG}text")]


def test_picture_looks_as_agreed(curves: list[Curve], golden: Callable[[str, str], None]) -> None:
    golden("cdf_svg", render_svg("tx.ack", curves).rstrip("\n"))


def test_picture_needs_nothing_else(curves: list[Curve]) -> None:
    text = render_svg("tx.ack", curves)
    assert text.count("http") == 1  # the name of the format
    assert not re.search(r"url\(|href|@import|<script|<image|<foreignObject", text)
    assert "@media (prefers-color-scheme: dark)" in text


def test_picture_says_what_the_text_says(curves: list[Curve]) -> None:
    found = texts(render_svg("tx.ack", curves))
    assert found[0] == "tx.ack"
    words = " ".join(found)
    for sentence in verdicts(list(zip("ABC", curves, strict=True))):
        assert sentence in words
    assert {"p1", "p99.9", "B/A", "C/A", "100%", "10 µs"} <= set(found)


def test_curve_goes_through_its_points(curves: list[Curve]) -> None:
    root = parsed(render_svg("tx.ack", [Curve("flat", Histogram.from_values([1_500] * 3 + [1_500_000]))]))
    (path,) = [each for each in root.iter(f"{SVG}path") if each.get("class") == "curve c0"][1:]
    pairs = [tuple(map(float, each.split())) for each in (path.get("d") or "")[1:].split("L")]
    (axis,) = [each for each in root.iter(f"{SVG}path") if each.get("class") == "axis"]
    left, top, height, width = map(float, re.findall(r"[\d.]+", axis.get("d") or ""))
    assert [round((top + height - y) / height, 3) for _, y in pairs] == [0, 0.75, 0.75, 1]
    # Its axis is from 1 µs to 2 ms: 1.5 ms is log(1500) / log(2000) of the way.
    assert abs(pairs[-1][0] - (left + 0.9622 * width)) < 0.1
    assert [each[0] for each in pairs] == sorted(each[0] for each in pairs)
    del curves


def test_names_cannot_break_out() -> None:
    name = '</title><script>alert(1)</script>&"\x1b[31m\x00'
    text = render_svg(name, [Curve(name, Histogram.from_values([5_000]))])
    root = parsed(text)
    assert "script" not in {element.tag.removeprefix(SVG) for element in root.iter()}
    assert (root.findtext(f"{SVG}title") or "").startswith("</title><script>alert(1)</script>&")
    assert "\x1b" not in text


def test_curve_without_samples_is_in_the_legend_alone() -> None:
    found = texts(render_svg("tx.nic", [Curve("tx.nic", Histogram.empty())]))
    assert found == ["tx.nic", "A", "tx.nic: no samples"]
