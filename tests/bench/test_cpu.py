# SPDX-License-Identifier: Apache-2.0
"""The conditions under which the accounting is measured: each tool sees the traffic that is measured."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from bench import cpu, hits, reader, tools
from bench.changes import changes_table
from bench.cpu import CONDITIONS, METRICS, condition, figures, programs
from bench.floor import Floor
from bench.traffic import received, saturated
from hopscope.lab import Lab
from tests import again

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_LOAD_S", 0.1)
    monkeypatch.setattr(hits, "_WINDOW_S", 0.1)
    monkeypatch.setattr(reader, "_SETTLE_S", 0.1)


def test_table_fits_the_terminal() -> None:
    rounds = [
        {name: {key: metric.unit * 999 * factor for key, metric in METRICS.items()} for name in CONDITIONS}
        for factor in (0.01, 0.1, 3)
    ]
    assert max(map(len, changes_table(rounds, METRICS).splitlines())) < 80


@pytest.mark.root
@pytest.mark.parametrize(("cpus", "bridged"), [(1, False), (2, True)])
def test_load_passes_between_the_ends(cpus: int, bridged: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with Lab(bridged=bridged) as lab:
        measured = again.until(lambda found: min(found.values()) > 0, lambda: figures(lab, nullcontext(), cpus))
        assert set(measured) <= set(METRICS)
        assert min(measured.values()) > 0
        assert received(lab.server.pid, "udp") > 0
        assert received(lab.client.pid, "udp") == 0


@pytest.mark.root
def test_each_tool_sees_what_is_measured(tmp_path: Path) -> None:
    names = ["+ 1 kHz", *(["perf 999 Hz"] if shutil.which("perf") else [])]
    assert set(names) <= set(CONDITIONS)
    floor = Floor(tmp_path, "cpu", programs())
    with Lab() as lab, saturated(lab.client, "udp", setup=cpu.setup(lab, "udp")):
        for name in names:
            # A tool that sees nothing raises when it ends.
            with condition(name, floor, tmp_path):
                time.sleep(3)


@pytest.mark.root
def test_programs_have_a_cost_beside_that_of_empty_ones(tmp_path: Path) -> None:
    ran = {"cpu_softirq_entry", "cpu_softirq_exit", "cpu_napi_poll", "cpu_call_enter", "cpu_call_exit"}
    with Lab() as lab, saturated(lab.client, "udp", setup=cpu.setup(lab, "udp")):
        floor = Floor(tmp_path, "cpu", programs())
        (windows,) = again.until(
            lambda rounds: all(ran <= set(window) for window in rounds[0].values()),
            lambda: hits.measured(floor, cpu.COLLECTORS, 1),
        )
        cpu_percent, _ = again.until(lambda found: found[0] > 0, lambda: reader.watched(tools.cpu(1_000), 0.3))
    assert all(ran <= set(window) for window in windows.values())
    assert 0 < cpu_percent < 100
