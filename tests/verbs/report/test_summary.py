# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.summary import summary
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from pathlib import Path


def test_events_are_counted_by_point(trace: Trace) -> None:
    report = summary(trace, Selection())
    events = dict(zip(report.column("point"), report.column("events"), strict=True))
    assert events == {
        "rx.driver": 2, "rx.core": 2, "tx.queue": 2, "tx.start": 2, "tcp.retransmit": 1,
        "rx.read": 1, "rx.received": 1, "softirq.enter": 1, "sched.switch": 1,
    }  # fmt: skip
    assert report.column("events_per_s")[0] == 0.2
    assert report.heading[0] == "recorded 2026-01-02 03:04:05 UTC for 10.000 s"
    assert "3 flows, 2 processes, 2 devices, 0 drops" in report.heading
    assert not report.notes


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    made = small()
    made.lose(10, 20, lost=23)
    made.plan = [
        {"point": "rx.l4", "way": "fentry", "status": "refused", "reason": "no BTF"},
        {"point": "rx.core", "way": "tp_btf", "status": "refused", "reason": "no BTF"},
        {"point": "rx.core", "way": "tracepoint", "status": "attached", "reason": ""},
    ]
    with Trace(made.write(tmp_path / "trace")) as trace:
        notes = summary(trace, Selection()).notes
    assert notes == [
        "lost: 23 events, because the reader or the disk was too slow; results that depend on them are missing",
        "rx.l4 not attached: no BTF",
    ]
