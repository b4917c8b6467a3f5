# SPDX-License-Identifier: Apache-2.0
"""A hop that slows down stands beside the counter that moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.moments import moments
from tests.lab.traces import NETNS, STARTED_NS, MadeTrace
from tests.verbs.report.test_outliers import EVERY, busy

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report

# Between two readings there are so many messages.
MESSAGES = 100
INTERVAL = MESSAGES * EVERY
INTERVALS = 8


def reading(made: MadeTrace, number: int, **values: int) -> None:
    time_ns = STARTED_NS + number * INTERVAL
    made.add("readings", time_ns=time_ns, until_ns=time_ns + 5)
    for name, value in values.items():
        made.add("counters", time_ns=time_ns, netns=NETNS, source="netstat", name=name, value=value, present=1)


def found(made: MadeTrace, folder: Path, limit: int | None = None) -> Report:
    with Trace(made.write(folder / "trace")) as trace:
        return moments(trace, Selection(), limit=limit)


def test_the_hop_that_was_slow_and_the_counters_that_stood_out_are_named_together(tmp_path: Path) -> None:
    made = MadeTrace()
    made.add("namespaces", netns=NETNS, name="web")
    busy(made, INTERVALS * MESSAGES, lambda number: {"rx.l4": 90_000} if number // MESSAGES == 5 else {}).write(made)
    for number in range(INTERVALS + 1):
        dropped, received = 13 * (number > 5), 1000 * number + 4000 * (number > 5)
        reading(made, number, TcpExtListenDrops=dropped, IpExtInOctets=received, TcpExtTCPHPHits=7 * number)
    report = found(made, tmp_path)
    at, until, what, of, count, usual = (
        report.column(name) for name in ("at_ns", "until_ns", "what", "of", "count", "usual_count")
    )
    assert set(zip(at, until, strict=True)) == {(5 * INTERVAL, 6 * INTERVAL)}
    assert "rx.core → rx.l4" in what[:2]
    assert list(zip(what, of, count, usual, strict=True))[-2:] == [
        ("TcpExtListenDrops", "web", 13, 0.0),
        ("IpExtInOctets", "web", 5000, 1000.0),
    ]
    place = what.index("rx.core → rx.l4")
    slow, normal = report.column("p99_ns")[place], report.column("usual_p99_ns")[place]
    assert isinstance(slow, float)
    assert isinstance(normal, float)
    assert 90_000 <= slow <= 110_000
    assert normal < 6_000
    assert report.column("count")[place] in range(MESSAGES - 1, MESSAGES + 2)


def test_a_loss_is_a_moment_though_no_hop_was_slow(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, INTERVALS * MESSAGES, lambda _: {}).write(made)
    for number in range(INTERVALS + 1):
        reading(made, number, UdpRcvbufErrors=3 * (number > 2), TcpExtTCPHPHits=50 * (number > 4))
    report = found(made, tmp_path)
    assert list(zip(report.column("at_ns"), report.column("what"), report.column("of"), strict=True)) == [
        (2 * INTERVAL, "UdpRcvbufErrors", str(NETNS))
    ]


def test_a_steady_run_has_no_moments(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, INTERVALS * MESSAGES, lambda _: {}).write(made)
    for number in range(INTERVALS + 1):
        reading(made, number, IpExtInOctets=1000 * number)
    report = found(made, tmp_path)
    assert len(report) == 0
    assert report.notes == []


def test_a_limit_keeps_the_worst_intervals_in_order_of_time(tmp_path: Path) -> None:
    made = MadeTrace()
    late = {2: 200_000, 4: 800_000, 6: 600_000}
    busy(made, INTERVALS * MESSAGES, lambda number: {"rx.l4": late.get(number // MESSAGES, 0)}).write(made)
    for number in range(INTERVALS + 1):
        reading(made, number)
    report = found(made, tmp_path, limit=1)
    assert set(report.column("at_ns")) == {4 * INTERVAL}
    assert report.left_out == 2


def test_without_readings_it_says_how_to_have_them(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 300, lambda _: {}).write(made)
    assert found(made, tmp_path).notes == [
        "counters were not recorded: `hopscope record` reads them unless --counters 0 is given"
    ]


def test_two_readings_are_too_few_to_know_what_is_usual(tmp_path: Path) -> None:
    made = MadeTrace()
    reading(made, 0)
    reading(made, 1)
    assert found(made, tmp_path).notes == [
        "the trace has too few readings of the counters to tell what is usual: at least three are needed"
    ]
