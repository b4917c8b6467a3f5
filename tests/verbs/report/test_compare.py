# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.compare import compare
from tests.lab.traces import MadeTrace
from tests.verbs.report.test_outliers import busy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.model.report import Report


def compared(
    folder: Path, one: Callable[[int], dict[str, int]], other: Callable[[int], dict[str, int]], count: int = 600
) -> Report:
    traces = []
    for seed, late in enumerate((one, other)):
        made = MadeTrace()
        busy(made, count, late, seed).write(made)
        traces.append(made.write(folder / str(seed)))
    with Trace(traces[0]) as before, Trace(traces[1]) as after:
        return compare(before, after, Selection())


def test_two_runs_of_the_same_kind_do_not_differ(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {})
    assert set(report.column("verdict")) == {"same"}
    assert report.heading[0].startswith("no significant difference in ")


def test_the_hop_that_got_slower_is_named_first(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {"rx.l4": 3_000})
    rows = dict(zip(report.column("hop"), report.column("verdict"), strict=True))
    assert {hop for hop, verdict in rows.items() if verdict != "same"} == {"rx.core → rx.l4", "message, in all"}
    place = report.column("hop").index("rx.core → rx.l4")
    assert place < 2
    assert report.column("mean_change_ns")[place] in range(2_800, 3_200)
    assert report.column("delta")[place] > 0.8


def test_a_tail_that_got_longer_is_named(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda number: {"tx.start": 900_000} if number % 20 == 3 else {})
    rows = dict(zip(report.column("hop"), report.column("verdict"), strict=True))
    assert rows["tx.queue → tx.start"] == "longer tail"
    assert rows["rx.core → rx.l4"] == "same"


def test_what_only_one_has_is_said(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 100, lambda _: {}).write(made)
    one = made.write(tmp_path / "one")
    other = made.write(tmp_path / "other", left_out=["rx.core"])
    with Trace(one) as before, Trace(other) as after:
        report = compare(before, after, Selection())
    assert "only in the first trace: rx.core → rx.l4 (100), rx.driver → rx.core (100)" in report.notes
    assert "only in the second trace: rx.driver → rx.l4 (100)" in report.notes


def test_too_few_are_not_compared(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {}, count=7)
    assert not len(report)
    assert report.notes[0].startswith("the traces have no hop in common")
