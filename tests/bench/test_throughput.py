# SPDX-License-Identifier: Apache-2.0
"""The table of what applications lose."""

from __future__ import annotations

from bench.changes import changes, changes_table
from bench.throughput import CONDITIONS, METRICS


def figures(factor: float) -> dict[str, float]:
    return {key: metric.unit * factor for key, metric in METRICS.items()}


ROUNDS = [
    {"off": figures(100), "empty": figures(95), "rx": figures(90), "budget": figures(99), "bpftrace": figures(50)},
    {"off": figures(200), "empty": figures(190), "rx": figures(196), "budget": figures(200), "bpftrace": figures(100)},
]


def test_change_is_against_off_in_the_same_round() -> None:
    assert changes(ROUNDS, "rx", "tcp").median == (-10 - 2) / 2
    assert changes(ROUNDS, "bpftrace", "udp").median == -50


def test_table_has_each_condition_of_each_metric_in_its_unit() -> None:
    _, *lines = changes_table(ROUNDS, METRICS).splitlines()
    assert len(lines) == len(METRICS) * len(CONDITIONS)
    assert lines[0].split() == ["TCP,", "Gbit", "per", "CPU", "s", "off", "150.00"]
    assert lines[2].split() == ["rx", "143.00", "-6.0", "(-8.0..-4.0)", "-5"]
    assert lines[-1].split() == ["bpftrace", "75.0", "-50.0", "(-50.0..-50.0)"]


def test_table_fits_the_terminal() -> None:
    rounds = [{name: figures(factor * 9999) for name in CONDITIONS} for factor in (1, 20, 300)]
    assert max(map(len, changes_table(rounds, METRICS).splitlines())) < 80
