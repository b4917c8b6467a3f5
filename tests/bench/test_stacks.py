# SPDX-License-Identifier: Apache-2.0
"""Both ways of a stack sample: every one is read or counted as lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import build_bpf
from bench import stacks
from bench.stacks import costs_table, verdict, window
from bench.traffic import saturated
from hopscope.lab import Namespace
from hopscope.libbpf import online_cpus
from tests import again

if TYPE_CHECKING:
    from pathlib import Path


def costs(bpf_ns: float, reader_ns: float) -> stacks.Costs:
    return {"bpf_ns": bpf_ns, "reader_ns": reader_ns, "samples": 10_000, "lost": 5}


def test_table_has_the_cost_over_the_empty_program_of_the_same_round() -> None:
    rounds = [
        {"empty": costs(factor * 80, 0), "ring": costs(factor * 1080, 400), "halves": costs(factor * 580, 300)}
        for factor in (1, 2)
    ]
    head, empty, ring, halves = costs_table(rounds).splitlines()
    assert empty.split() == ["empty", "program", "10000", "5", "120"]
    assert ring.split() == ["ring", "10000", "5", "1620", "1500", "(1250..1750)", "400", "(400..400)"]
    assert halves.split()[-4] == "750"
    assert max(map(len, (head, ring, halves))) < 80


@pytest.mark.parametrize(
    ("ring_ns", "words"), [((900, 950), "the ring is"), ((1200, 1250), "the array is"), ((950, 1150), "neither is")]
)
def test_verdict_says_so_where_the_spread_allows_none(ring_ns: tuple[float, float], words: str) -> None:
    assert words in verdict([{"ring": costs(ns, 50), "halves": costs(1000, 50)} for ns in ring_ns])


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "stacks.bpf.o"
    build_bpf.compile_object(stacks._SOURCE, path, build_bpf.host_arch())
    return path


@pytest.mark.root
@pytest.mark.parametrize("name", ["ring", "halves"])
def test_every_sample_is_read_or_counted_as_lost(name: str, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_WINDOW_S", 0.2)
    with Namespace() as namespace, saturated(namespace, "tcp"):
        roomy = again.until(lambda costs: costs["samples"] > 0 == costs["lost"], lambda: window(built, name))
        # Where there is room for a few only. What is read must still be what was taken, or this raises.
        monkeypatch.setattr(stacks, "_RING_BYTES", 4096)
        monkeypatch.setattr(stacks, "_SLOTS", 4)
        tight = again.until(lambda costs: min(costs["samples"], costs["lost"]) > 0, lambda: window(built, name))
    assert roomy["samples"] > 0
    assert roomy["lost"] == 0
    assert 0 < tight["samples"] <= 4 * 3 * len(online_cpus())
    assert tight["lost"] > 0
