# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.gate import passed
from hopscope.term.plan import render_plan, render_probes
from hopscope.term.terminal import Terminal, columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.model.snapshot import HostFact, PointStatus, Snapshot


@pytest.mark.parametrize("width", [40, 80])
def test_plan_looks_as_agreed(tcp_snapshot: Snapshot, width: int, golden: Callable[[str, str], None]) -> None:
    text = render_plan(tcp_snapshot.plan, Terminal(width))
    assert max(map(columns, text.splitlines())) <= width
    golden(f"plan_{width}", text)


@pytest.mark.parametrize("width", [40, 80])
def test_probes_look_as_agreed(
    point_statuses: list[PointStatus], host: list[HostFact], width: int, golden: Callable[[str, str], None]
) -> None:
    text = render_probes("6.18.0", point_statuses, host, Terminal(width))
    assert max(map(columns, text.splitlines())) <= width
    golden(f"probes_{width}", text)


def test_probes_in_ascii(point_statuses: list[PointStatus], host: list[HostFact]) -> None:
    assert render_probes("6.18.0", point_statuses, host, Terminal(80, unicode=False)).isascii()


def test_refusals_stand_out(tcp_snapshot: Snapshot) -> None:
    lines = passed(render_plan(tcp_snapshot.plan, Terminal(80, colour=True))).splitlines()
    assert [line for line in lines if line.startswith("\x1b[33m")] == lines[1:3]
    assert "refused" in lines[1]
