# SPDX-License-Identifier: Apache-2.0
"""What another host calls things cannot do anything to the terminal, or to a reader of the files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hopscope.model.cdf import Curve
from hopscope.model.cpu import CpuRow, CpuSnapshot, Part, added
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.histogram import Histogram
from hopscope.model.hosts import Absence
from hopscope.model.message import Device, Flow
from hopscope.model.parts import PARTS
from hopscope.model.slowest import Slowest
from hopscope.model.snapshot import Discard, HopRow, Overhead, PlanRow, ProgramCost, Snapshot
from hopscope.model.stacks import Stack
from hopscope.term.cdf import render_cdf
from hopscope.term.cdf_svg import render_svg
from hopscope.term.flamegraph import render_flamegraph
from hopscope.term.folded import render_folded
from hopscope.term.histogram import render_histograms
from hopscope.term.hosts import absence_lines
from hopscope.term.message_table import Columns, message_lines, render_slowest
from hopscope.term.plan import render_plan
from hopscope.term.speedscope import render_speedscope
from hopscope.term.table import render_table
from hopscope.term.terminal import Terminal
from hopscope.verbs.cpu.table import render_cpu
from hopscope.verbs.drops.table import render_drops
from tests.lab.snapshots import OFFSET_NS, message

if TYPE_CHECKING:
    from collections.abc import Callable

EVIL = "x\x1b]0;pwned\x07\r\x9b31m\u202e</title><script>"
TERMINAL = Terminal(100)
HISTOGRAM = Histogram.from_values([1_000, 2_000])
COST = Overhead(1, 2.0, 1.0, 1.0, 3, [ProgramCost(EVIL, 1, 1.0)])
PLAN = [PlanRow(EVIL, EVIL, "refused", EVIL, EVIL, EVIL)]
HOPS = Snapshot(
    "rx",
    "interval",
    0,
    1.0,
    [HopRow(EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}, HISTOGRAM, EVIL)],
    COST,
    1,
    [Discard(EVIL, EVIL, 1, EVIL)],
    PLAN,
    2,
    {EVIL: EVIL},
    [EVIL],
)
DROPS = DropSnapshot("interval", 0, 1.0, [DropRow({EVIL: EVIL}, 1)], 1, 1, COST, PLAN, {EVIL: EVIL}, [EVIL])
STACKS = [Stack("send", (EVIL, EVIL), 3, EVIL)]
ROW = CpuRow({EVIL: EVIL}, dict.fromkeys(PARTS, Part(0, 0, 0, 0)) | {"send": Part(9, 1, 1, 1)})
CPU = CpuSnapshot("interval", 0, 1.0, 1, CpuRow({}, added([ROW])), [ROW], COST, 99, STACKS, 1, None, PLAN, [EVIL])
MESSAGE = message(Flow(EVIL, EVIL, 1, EVIL, 2, EVIL, 3, EVIL), devices=[Device(EVIL, 0), Device(EVIL, 1)])

TEXTS: dict[str, Callable[[], str]] = {
    "table": lambda: render_table(HOPS, TERMINAL),
    "histogram": lambda: render_histograms(HOPS, TERMINAL),
    "cpu": lambda: render_cpu(CPU, TERMINAL, limit=9, breakdown=True),
    "drops": lambda: render_drops(DROPS, TERMINAL, 9),
    "plan": lambda: render_plan(PLAN, TERMINAL),
    "messages": lambda: "\n".join(
        message_lines(MESSAGE, OFFSET_NS, Columns("tx").fitting([MESSAGE], TERMINAL), TERMINAL, more=EVIL)
    ),
    "slowest": lambda: render_slowest(Slowest("total", 1, 1, 0, [MESSAGE]), "tx", OFFSET_NS, TERMINAL),
    "absences": lambda: "\n".join(absence_lines("a", [Absence(0, None, EVIL)], 0, TERMINAL)),
    "cdf": lambda: render_cdf([Curve(EVIL, HISTOGRAM)], TERMINAL),
    "folded": lambda: render_folded(STACKS),
}
PICTURES: dict[str, Callable[[], str]] = {
    "flamegraph": lambda: render_flamegraph(EVIL, STACKS, (EVIL,)),
    "cdf": lambda: render_svg(EVIL, [Curve(EVIL, HISTOGRAM)]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_has_nothing_that_cannot_be_printed(name: str) -> None:
    text = TEXTS[name]()
    assert "pwned" in text
    assert [char for char in text if not char.isprintable() and char != "\n"] == []


@pytest.mark.parametrize("name", PICTURES)
def test_picture_has_nothing_but_its_own_elements(name: str) -> None:
    picture = PICTURES[name]()
    assert "pwned" in picture
    assert [char for char in picture if not char.isprintable() and char not in "\n\t"] == []
    assert picture.count("<script") == {"flamegraph": 1, "cdf": 0}[name]


def test_speedscope_is_json_whatever_functions_are_called() -> None:
    assert EVIL in {frame["name"] for frame in json.loads(render_speedscope(EVIL, STACKS))["shared"]["frames"]}
