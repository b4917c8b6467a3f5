# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.gate import passed
from hopscope.model.histogram import Histogram
from hopscope.model.snapshot import Discard, HopRow, Overhead, Snapshot
from hopscope.term.table import render_table
from hopscope.term.terminal import Terminal, columns

if TYPE_CHECKING:
    from collections.abc import Callable

SNAPSHOTS = ("tcp", "full", "grouped", "empty")


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    found = request.getfixturevalue(f"{request.param}_snapshot")
    assert isinstance(found, Snapshot)
    return found


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize(("snapshot", "name"), [(name, name) for name in SNAPSHOTS], indirect=["snapshot"])
def test_table_looks_as_agreed(snapshot: Snapshot, name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(f"table_{name}_{width}", render_table(snapshot, Terminal(width)))


def test_table_in_ascii_looks_as_agreed(full_snapshot: Snapshot, golden: Callable[[str, str], None]) -> None:
    text = render_table(full_snapshot, Terminal(80, unicode=False))
    assert text.isascii()
    golden("table_full_80_ascii", text)


def test_table_in_colour_looks_as_agreed(tcp_snapshot: Snapshot, golden: Callable[[str, str], None]) -> None:
    golden("table_tcp_80_colour", passed(render_table(tcp_snapshot, Terminal(80, colour=True))).replace("\x1b", "\\e"))


@pytest.mark.parametrize("snapshot", SNAPSHOTS, indirect=True)
def test_no_line_is_wider_than_the_terminal(snapshot: Snapshot) -> None:
    for width in range(40, 161):
        for line in render_table(snapshot, Terminal(width)).splitlines():
            assert columns(line) <= width, line


def test_colour_changes_nothing_but_colour(full_snapshot: Snapshot) -> None:
    painted = passed(render_table(full_snapshot, Terminal(100, colour=True)))
    assert re.sub(r"\x1b\[\d*m", "", painted) == render_table(full_snapshot, Terminal(100))


def test_only_the_largest_hop_of_a_protocol_stands_out(tcp_snapshot: Snapshot) -> None:
    lines = passed(render_table(tcp_snapshot, Terminal(80, colour=True))).splitlines()
    bold = [line for line in lines if line.startswith("\x1b[1m")]
    assert len(bold) == 1
    assert "rx.tcp_wake" in bold[0]


def test_columns_do_not_move_between_intervals(tcp_snapshot: Snapshot) -> None:
    small = [replace(row, histogram=Histogram.from_values([1])) for row in tcp_snapshot.hops]
    one, other = (render_table(s, Terminal(90)).splitlines() for s in (tcp_snapshot, replace(tcp_snapshot, hops=small)))
    assert one[1].split()[:-2] == other[1].split()[:-2]
    assert one[1].index("max") == other[1].index("max")


def test_more_width_never_shows_fewer_columns(tcp_snapshot: Snapshot) -> None:
    shown: set[str] = set()
    for width in range(40, 161):
        title = set(render_table(tcp_snapshot, Terminal(width)).splitlines()[1].split())
        assert shown <= title
        shown = {word for word in title if word not in {"0", "20ms"}}
    assert shown == {"hop", "share", "count", "rate/s", "mean", "p50", "p90", "p99", "p99.9", "max"}


def test_filters_are_named_when_nothing_matches(empty_snapshot: Snapshot) -> None:
    text = render_table(replace(empty_snapshot, filters={"interface": "eth7"}), Terminal(120))
    assert "No packets matched interface=eth7" in text


def test_discarded_samples_are_not_no_traffic(empty_snapshot: Snapshot) -> None:
    text = render_table(replace(empty_snapshot, discarded=[Discard("rx.ip", "stale", 7, "too old")]), Terminal(120))
    assert "No samples could be used" in text
    assert "discarded: 7 at rx.ip (100%): too old" in text


def test_many_group_columns_still_fit_40_columns() -> None:
    group = dict.fromkeys(("interface", "cgroup", "process", "namespace", "cpu", "protocol"), "/some/long/path")
    row = HopRow("rx.tcp_order", "a", "b", "packet", group, Histogram.from_values([5_000]))
    snapshot = Snapshot("rx", "interval", 0, 1.0, [row], Overhead(0, None, None, 0.0, 0))
    lines = render_table(snapshot, Terminal(40)).splitlines()
    assert max(map(columns, lines)) <= 40
    assert lines[2].endswith("5.00µs")


def test_an_interval_of_no_length_has_no_rate(tcp_snapshot: Snapshot) -> None:
    lines = render_table(replace(tcp_snapshot, duration_s=0.0), Terminal(80)).splitlines()
    assert lines[2].split()[2] == "-"
