# SPDX-License-Identifier: Apache-2.0
"""``--plot`` of the reports on messages and on two recordings: what is drawn is what is printed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from hopscope.term.compare_svg import Change, render_changes
from hopscope.term.waterfall_svg import Bar, Waterfall, render_waterfalls
from tests.lab.command import hopscope

RECORDINGS: Final = Path(__file__).parents[2] / "recordings"
_SVG: Final = "{http://www.w3.org/2000/svg}"
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def said(root: ET.Element, name: str, look: str) -> list[str]:
    """Return the tooltips of elements."""
    return [
        each.findtext(f"{_SVG}title") or ""
        for each in root.iter(f"{_SVG}{name}")
        if (each.get("class") or "").startswith(look)
    ]


def test_a_waterfall_has_the_stages_of_each_message(tmp_path: Path) -> None:
    options = ("messages", RECORDINGS / "tcp-rx", "--limit", "7", "--json", "--plot", tmp_path / "m.svg")
    done = hopscope("report", *options)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    root = ET.parse(tmp_path / "m.svg").getroot()  # noqa: S314 # our own
    bars = [each for each in said(root, "rect", "bar") if each]
    (drawn,) = ({each.partition(":")[0] for each in bars},)
    assert {"tx.queue", "rx.core", "sched.wake", "rx.received"} <= drawn
    assert len([each for each in bars if each.startswith("rx.received:")]) == len(rows) == 7
    keys = {each.text for each in root.iter(f"{_SVG}text") if each.get("class") == "faint"}
    assert {row["blame"] for row in rows} <= keys


def test_two_recordings_have_a_row_a_hop_also_as_a_bitmap(tmp_path: Path) -> None:
    both = (RECORDINGS / "tcp-rx", RECORDINGS / "udp")
    done = hopscope("report", "compare", *both, "--json", "--plot", tmp_path / "c.svg")
    assert done.returncode == 0, done.stderr
    root = ET.parse(tmp_path / "c.svg").getroot()  # noqa: S314 # our own
    hops = [(each.findtext(f"{_SVG}title") or "").rpartition(": ")[0] for each in root.iter(f"{_SVG}g")]
    assert hops == [json.loads(line)["hop"] for line in done.stdout.splitlines()]
    assert hopscope("report", "compare", *both, "--plot", tmp_path / "c.png").returncode == 0
    bitmap = (tmp_path / "c.png").read_bytes()
    assert bitmap.startswith(_PNG)
    assert struct.unpack(">II", bitmap[16:24]) == (int(root.get("width", 0)), int(root.get("height", 0)))


def test_without_the_package_a_bitmap_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    program = "import sys; sys.modules['resvg_py'] = None; from hopscope.__main__ import main; main()"
    words = [sys.executable, "-c", program, "report", "hops", RECORDINGS / "udp", "--plot", tmp_path / "x.png"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "A bitmap needs resvg-py" in done.stderr
    assert not (tmp_path / "x.png").exists()


def test_names_are_text_and_nothing_is_a_picture_too() -> None:
    name = "<script>\x1b[31m&"
    pictures = (
        render_waterfalls(name, [Waterfall(name, 10, [Bar(name, 0, 10, (name,))]), Waterfall("", 0, [])]),
        render_waterfalls(name, []),
        render_changes(name, [Change(name, name, (1.0, 2.0), (0.0, 3.0))]),
        render_changes(name, []),
    )
    for picture in pictures:
        root = ET.fromstring(picture)  # noqa: S314 # our own
        assert root.findtext(f"{_SVG}title") == "<script>?[31m&"
        assert "script" not in {each.tag.removeprefix(_SVG) for each in root.iter()}
