# SPDX-License-Identifier: Apache-2.0
"""Runs of the programs: none for a stream that is not selected, and as many as there are callbacks for one that is."""

from __future__ import annotations

import pytest

from bench import callbacks
from bench.callbacks import SELECTED, SIZES, Window, programs_table, runs_table, silence, window
from bench.hits import Cost
from bench.traffic import TrafficSetup, saturated
from hopscope.lab import Namespace
from tests import again

BUSY = Window(1000, {"often": Cost(4000, 300), "seldom": Cost(500, 100)})
CALM = Window(2000, {"often": Cost(2000, 100)})
ROUND = {"other flow": Window(1000, {}), "everything": CALM, "selected": BUSY, "1 in 64": CALM, "all hops": BUSY}


def test_runs_are_of_all_programs_and_time_is_spread_over_the_messages() -> None:
    _, other, everything, selected, *_ = runs_table([ROUND, ROUND]).splitlines()
    assert other.split()[2:] == ["1.0", "(1.0..1.0)", "0", "(0..0)", "0.0", "(0.0..0.0)"]
    assert everything.split()[1:] == ["2.0", "(2.0..2.0)", "2000", "(2000..2000)", "100", "(100..100)"]
    assert selected.split()[1:] == ["1.0", "(1.0..1.0)", "4500", "(4500..4500)", "1250", "(1250..1250)"]


def test_windows_without_any_run_are_counted() -> None:
    noisy = {**ROUND, "other flow": CALM}
    assert "in 2 of 3 windows" in silence([ROUND, noisy, ROUND])


def test_programs_are_those_that_ran_for_a_selected_stream() -> None:
    once = {**ROUND, "1 in 64": Window(1000, {})}
    _, *lines = programs_table([ROUND, once]).splitlines()
    assert [line.split() for line in lines] == [
        ["selected", "often", "4.00", "(4.00..4.00)", "300", "(300..300)"],
        ["selected", "seldom", "0.50", "(0.50..0.50)", "100", "(100..100)"],
        ["1", "in", "64", "often", "1.00", "(1.00..1.00)", "100", "(100..100)"],
        ["all", "hops", "often", "4.00", "(4.00..4.00)", "300", "(300..300)"],
        ["all", "hops", "seldom", "0.50", "(0.50..0.50)", "100", "(100..100)"],
    ]


@pytest.mark.root
def test_sends_run_a_program_only_if_they_are_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_WINDOW_S", 0.1)
    size_bytes = SIZES["64 KiB"]
    with Namespace() as namespace, saturated(namespace, "tcp", setup=TrafficSetup(7001, ("--size", size_bytes))):
        # A connection that anybody on the host makes meanwhile runs a program, too: one window without will do.
        others = [window(namespace, "other flow", size_bytes) for _ in range(5)]
        seen = {
            name: again.until(
                lambda each: each.messages_per_s > 0 and bool(each.programs),
                lambda name=name: window(namespace, name, size_bytes),
            )
            for name in ("everything", *SELECTED)
        }
    assert min(each.messages_per_s for each in seen.values()) > 0
    assert {} in [each.programs for each in others if each.messages_per_s > 0]
    assert all(each.programs for each in seen.values())
    assert "tx_stamped" not in seen["everything"].programs
    assert "tx_stamped" in seen["selected"].programs
