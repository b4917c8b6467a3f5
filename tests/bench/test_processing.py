# SPDX-License-Identifier: Apache-2.0
"""The processing of samples: the text of perf is folded right, and costs are held against ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from bench import processing
from bench.cpu import setup
from bench.processing import costs_table, folded
from hopscope.lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = """\
python3 77777 [001] 14183.652717:    1001001 cpu-clock:k:
\tffffffff82203249 _raw_spin_unlock_irqrestore+0x19 ([kernel.kallsyms])
\tffffffff81631f32 kmem_cache_free+0x4e2 ([kernel.kallsyms])

udp sender    78 [000] 14183.652800:    1001001 cpu-clock:k:
\tffffffff81632032 kmem_cache_free+0x4e2 ([kernel.kallsyms])

python3 77777 [001] 14183.652917:    1001001 cpu-clock:k:
\tffffffff82203255 _raw_spin_unlock_irqrestore+0x25 ([kernel.kallsyms])
\tffffffff81631f32 kmem_cache_free+0x4e2 ([kernel.kallsyms])
"""


@pytest.mark.parametrize("end", ["", "\n"])
def test_equal_stacks_are_counted_together_the_outermost_function_first(end: str) -> None:
    counts = folded((SAMPLES + end).splitlines())
    assert counts["udp sender;kmem_cache_free"] == 1
    assert counts["python3;kmem_cache_free;_raw_spin_unlock_irqrestore"] == 2


def test_costs_are_held_against_ours_of_the_same_round() -> None:
    first = {"ours": {"ours": 10.0, "samples": 500}, "perf": {"script": 40.0, "folding": 5.0, "samples": 900}}
    second = {"ours": {"ours": 20.0, "samples": 600}, "perf": {"script": 120.0, "folding": 10.0, "samples": 900}}
    _, ours, script, folding = costs_table([first, second]).splitlines()
    assert ours.split()[-4:] == ["550", "15.00", "(12.50..17.50)", "1.0"]
    assert script.split()[-1] == "5.0"
    assert folding.split()[-1] == "0.5"


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("perf"), reason="there is no perf")
def test_both_take_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "_SECONDS", 0.3)
    with Lab() as lab:
        table, start = processing.run(lab.client, setup(lab, "tcp"), tmp_path, 1)
    assert "perf script" in table
    assert "symbols" in start
