# SPDX-License-Identifier: Apache-2.0
"""The table of how long sockets take to read."""

from __future__ import annotations

import re

import pytest

from bench import many_sockets, sockets
from hopscope.kernel.sockets.filter_parse import parse
from hopscope.lab import Namespace
from hopscope.verbs.sockets.collector import SocketOptions, SocketWatch


def test_table_compares_with_ss_of_the_same_round() -> None:
    first = {"ss -tin": 40.0, "dump": 10.0, "dump and parse": 20.0}
    lines = sockets.times_table([first, {name: value * 3 for name, value in first.items()}]).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["1.00", "0.25", "0.50"]


@pytest.mark.root
def test_sockets_are_there_in_as_many_processes_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_sockets, "most_of_a_process", lambda: 101)
    with Namespace() as namespace:
        options = SocketOptions([6], parse(["state", "established"], int), namespaces=[namespace.inode])
        with many_sockets.connected(namespace, 230):
            report = SocketWatch(options, again=False).snapshot()
            assert len(report) == 230
            assert len({owners[0].pid for owners in report.owners.values()}) == 3


@pytest.mark.root
def test_all_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SOCKETS", 200)
    monkeypatch.setattr(sockets, "MOST_SOCKETS", 400)
    times, wanted, memory, limit = sockets.run(rounds=2)
    figures = [float(value) for value in re.findall(r" ([\d.]+) \(", times)]
    assert len(figures) == 5
    assert all(figure > 0 for figure in figures)
    assert "400 sockets" in memory
    assert wanted.startswith("wanted")
    assert limit.startswith("wanted")
