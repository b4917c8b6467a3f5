# SPDX-License-Identifier: Apache-2.0
"""The conditions under which recording is measured: each tool sees the traffic that is measured."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from bench.changes import changes_table
from bench.floor import Floor
from bench.record import CONDITIONS, METRICS, condition, programs, recorded
from bench.traffic import saturated
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from pathlib import Path


def test_table_fits_the_terminal() -> None:
    rounds = [
        {name: {key: metric.unit * 999 * factor for key, metric in METRICS.items()} for name in CONDITIONS}
        for factor in (0.01, 0.1, 3)
    ]
    assert max(map(len, changes_table(rounds, METRICS).splitlines())) < 80


@pytest.mark.root
def test_each_tool_sees_what_is_measured(tmp_path: Path) -> None:
    names = ["unread", "packets + cpu", *(["trace-cmd"] if shutil.which("trace-cmd") else [])]
    assert set(names) <= set(CONDITIONS)
    floor = Floor(tmp_path, "record", programs(("packets",)))
    with Namespace() as namespace, saturated(namespace, "tcp"):
        for name in names:
            # A tool that sees nothing raises when it ends.
            with condition(name, floor, tmp_path):
                time.sleep(3)


@pytest.mark.root
def test_recording_is_measured(tmp_path: Path) -> None:
    with Namespace() as namespace, saturated(namespace, "udp"):
        found = recorded(tmp_path / "trace", "packets", 3)
    assert found.events > 1000
    assert found.cpu_s > 0
    assert 1 < found.size_bytes / found.events < 56
