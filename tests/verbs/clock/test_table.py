# SPDX-License-Identifier: Apache-2.0
"""How clocks of several hosts look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import numpy as np
import pytest

from hopscope.term.terminal import Terminal, columns
from hopscope.verbs.clock import report as rows
from hopscope.verbs.clock.json import clocks_to_json
from hopscope.verbs.clock.plot import render_plot
from hopscope.verbs.clock.report import (
    ChangeRow,
    ClockReport,
    Comparison,
    Delays,
    History,
    HostRow,
    Loop,
    PairRow,
    PhcRow,
)
from hopscope.verbs.clock.table import exact, render_clocks
from tests.lab.snapshots import STARTED_NS

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "json" / "hopscope.clock-1.schema.json"
SECOND = 1_000_000_000

PHCS = [PhcRow("ptp0 (eth0)", 37_000_000_012, 234)]


def history(drift: float, step_ns: int = 0) -> History:
    """Return a minute that drifts, swings by 40 ns, and steps in its middle."""
    at_ns = np.arange(120) * SECOND // 2
    offset_ns = at_ns * drift + 40 * np.sin(at_ns / 3e9) + np.where(at_ns > 30 * SECOND, step_ns, 0)
    return History(at_ns, np.rint(offset_ns).astype(np.int64) - 7_000, np.full(120, 612.0))


def report(kind: str) -> ClockReport:
    pairs = [
        PairRow(
            *("db", "web-frontend-7", rows.GOOD),
            now=Comparison(-1_000 * SECOND - 123, 2_345, -20.1234e-6, 3e-9),
            there=Delays(23_456, 24_000),
            back=Delays(23_460, 323_460),
            probes=30,
            answered=30,
            stamps=rows.HARDWARE,
            history=history(-20e-6),
        ),
        PairRow(
            *("db", "日本", rows.CHANGED),
            now=Comparison(123_456, 612, 1e-4, 3e-4),
            there=Delays(600, 650),
            back=Delays(600, 700),
            probes=30,
            answered=17,
            lost=12,
            refused={"foreign": 1_234, "garbled": 1},
            changes=2,
            stamps=rows.MIXED,
            history=history(0.0, 300),
        ),
        PairRow("web-frontend-7", "日本", rows.FAILED, "日本 did not answer for 5 s", probes=12),
    ]
    hosts = [
        HostRow(
            "db", "10.0.0.1", 0, 0, synchronized=True, max_error_ns=1_234_567, tai_offset_s=37, daemons=["chronyd"]
        ),
        HostRow("web-frontend-7", "fd00::7", -1_234, 2_400, True, 99, 0),  # noqa: FBT003
        HostRow("日本", "10.0.0.3", None, None, False, None, 0, ["ptp4l", "phc2sys"], PHCS),  # noqa: FBT003
    ]
    loops = [Loop(("db", "web-frontend-7", "日本"), 23, 4_000), Loop(("a", "b", "c"), -5_000, 4_000)]
    notes = (
        ["No UDP packet comes through between db (10.0.0.1:9) and 日本 (10.0.0.3:10)."] if kind == "interval" else []
    )
    changes = [ChangeRow("db", 0.0, -30_000), ChangeRow("日本", 1.2345e-6, 1)] * (6 if kind == "total" else 1)
    return ClockReport(kind, STARTED_NS, 1.0003, pairs, hosts, loops, changes, notes)


@pytest.mark.parametrize("width", [40, 80, 120, 170])
@pytest.mark.parametrize("kind", ["interval", "total"])
def test_table(kind: str, width: int, golden: Callable[[str, str], None]) -> None:
    text = render_clocks(report(kind), Terminal(width))
    if width > 80:  # names and what keeps clocks right may be longer than a narrow terminal
        assert all(columns(line) <= width for line in text.split("\n"))
    golden(f"clocks_{kind}_{width}", text)


def test_table_in_ascii(golden: Callable[[str, str], None]) -> None:
    text = render_clocks(report("total"), Terminal(unicode=False))
    assert text.isascii()
    golden("clocks_80_ascii", text)


@pytest.mark.parametrize(("pair", "width"), [(0, 40), (0, 80), (1, 80)])
def test_plot(pair: int, width: int, golden: Callable[[str, str], None]) -> None:
    lines = render_plot(report("total").pairs[pair], Terminal(width))
    assert all(columns(line) <= width for line in lines)
    golden(f"clock_plot_{pair}_{width}", "\n".join(lines))


def test_plot_in_ascii(golden: Callable[[str, str], None]) -> None:
    text = "\n".join(render_plot(report("total").pairs[1], Terminal(unicode=False)))
    assert text.isascii()
    golden("clock_plot_80_ascii", text)


def test_there_is_no_plot_of_hardly_anything() -> None:
    assert render_plot(report("total").pairs[2], Terminal()) == []


@pytest.mark.parametrize(
    ("offset_ns", "text"),
    [
        (0, "+0 ns"),
        (-999_999, "-999,999 ns"),
        (1_000_000, "+0.001000000 s"),
        (-(10**18) - 1, "-1,000,000,000.000000001 s"),
    ],
)
def test_offsets_are_exact(offset_ns: int, text: str) -> None:
    assert exact(offset_ns) == text


@pytest.mark.parametrize("kind", ["interval", "total"])
def test_json_is_as_its_schema_says(kind: str) -> None:
    document = clocks_to_json(report(kind))
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert json.loads(json.dumps(document)) == document
    assert document["pairs"][0]["offset_ns"] == -1_000 * SECOND - 123
    assert document["pairs"][2]["failure"] == "日本 did not answer for 5 s"
