# SPDX-License-Identifier: Apache-2.0
"""Hosts whose clocks are known, and a driver that hands out what they would have stamped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hopscope.clock.adjustment import Adjustment
from hopscope.clock.change import Change, Look
from hopscope.clock.domain import ClockDomain
from hopscope.clock.pairs import Host, Window
from hopscope.clock.phc import Domain
from hopscope.clock.samples import Direction, Samples
from hopscope.verbs.clock import report as rows
from hopscope.verbs.clock.book import ClockBook
from tests.clock.simulated import SECOND, START_NS, Network, Ns, window

NAMES = ("a", "b", "c")
# By how much each host's CLOCK_MONOTONIC is ahead of a's, and its CLOCK_REALTIME ahead of its CLOCK_MONOTONIC.
AHEAD_NS = {"a": 0, "b": 1_000 * SECOND + 123, "c": -7_000}
WALL_NS = {"a": 1_700_000_000 * SECOND, "b": 1_699_999_000 * SECOND - 23, "c": 1_700_000_000 * SECOND + 8_000}
DRIFT = {"a": 0.0, "b": 5e-6, "c": -2e-6}
ENDS = [(0, 1), (0, 2), (1, 2)]
Changes = tuple[Change | None, Change | None]
NO_CHANGES: Changes = (None, None)


def shows(host: str, times_ns: Ns) -> Ns:
    """Return what a host's clock shows when a's shows some times."""
    return times_ns + AHEAD_NS[host] + np.rint((times_ns - START_NS) * DRIFT[host]).astype(np.int64)


class Driver:
    """As much of `Pairs` as a book looks at."""

    def __init__(self) -> None:
        self.hosts = [
            Host(name, f"10.0.0.{number}", lambda: pytest.fail("no line")) for number, name in enumerate(NAMES)
        ]
        self.ends = ENDS
        self.failed: dict[int, str] = {}
        self.pairs = [SimpleNamespace(probes=0, answered=0, lost=0, refused={}) for _ in ENDS]
        self.quiet: list[str] = []
        self._rng = np.random.default_rng(1)

    def silent(self) -> list[str]:
        return self.quiet

    def window(self, pair: int, number: int, changes: Changes = NO_CHANGES) -> Window:
        """Return what a pair stamps, and count it."""
        first, second = (NAMES[host] for host in ENDS[pair])

        def truth(times_ns: Ns) -> Ns:
            # Times are of the first host of the pair.
            about = times_ns - AHEAD_NS[first]
            by_a = about - np.rint((about - START_NS) * DRIFT[first] / (1 + DRIFT[first])).astype(np.int64)
            return shows(second, by_a) - times_ns

        at_ns = int(shows(first, np.array([START_NS + number * SECOND // 2]))[0])
        made = window(truth, at_ns, Network(), self._rng)
        samples = Samples(ClockDomain(first), ClockDomain(second), made.there, made.back, made.bound_ns)
        counted = self.pairs[pair]
        counted.probes += 15
        counted.answered += 14
        counted.refused = {"duplicate": counted.refused.get("duplicate", 0) + 1}
        looks = self.look(first, at_ns), self.look(second, at_ns + AHEAD_NS[second] - AHEAD_NS[first])
        return Window(pair, samples, changes, looks)

    @staticmethod
    def look(host: str, at_ns: int) -> Look:
        said = Adjustment(
            at_ns,
            0.0,
            synchronized=host == "b",
            max_error_ns=900,
            estimated_error_ns=9,
            tai_offset_s=37 * (host == "b"),
        )
        return Look(said, Domain(-WALL_NS[host], 0))


@pytest.fixture
def driver() -> Driver:
    return Driver()


def filled(driver: Driver, count: int = 12, pairs: tuple[int, ...] = (0, 1, 2)) -> ClockBook:
    book = ClockBook(driver, [["chronyd"], [], []])  # type: ignore[arg-type]
    for number in range(count):
        for pair in pairs:
            book.add(driver.window(pair, number))
    return book


@pytest.mark.parametrize("kind", ["interval", "total"])
def test_offsets_drifts_and_delays_are_what_they_are(driver: Driver, kind: str) -> None:
    report = getattr(filled(driver), kind)()
    assert report.kind == kind
    at_ns = START_NS + 11 * SECOND // 2
    for row, ends in zip(report.pairs, ENDS, strict=True):
        first, second = (NAMES[host] for host in ends)
        assert (row.first, row.second, row.state) == (first, second, rows.GOOD)
        truth = shows(second, np.array([at_ns])) - shows(first, np.array([at_ns]))
        assert abs(row.now.offset_ns - truth[0]) <= row.now.bound_ns + 100
        assert row.now.bound_ns < 700
        assert abs(row.now.drift - (DRIFT[second] - DRIFT[first])) <= row.now.drift_bound
        for delays in (row.there, row.back):
            assert abs(delays.least_ns - 500) < 100
            assert 100 < delays.waited_ns < 400
        assert (row.probes, row.answered, row.refused) == (180, 168, {"duplicate": 12})
        assert len(row.history.at_ns) == 12


def test_counts_are_of_the_interval_and_then_of_all(driver: Driver) -> None:
    book = filled(driver)
    book.interval()
    book.add(driver.window(0, 12))
    interval, total = book.interval(), book.total()
    assert [row.probes for row in interval.pairs] == [15, 0, 0]
    assert interval.pairs[0].refused == {"duplicate": 1}
    assert interval.pairs[1].state == rows.SILENT
    assert [row.probes for row in total.pairs] == [195, 180, 180]


def test_wall_clocks_are_compared_by_way_of_the_clocks_of_traces(driver: Driver) -> None:
    found = filled(driver).total().hosts
    assert [host.name for host in found] == list(NAMES)
    assert (found[0].realtime_ns, found[0].realtime_bound_ns) == (0, 0)
    end_ns = 11 * SECOND / 2
    for host, truth_ns in ((found[1], 100 + end_ns * 5e-6), (found[2], 1_000 - end_ns * 2e-6)):
        assert abs(host.realtime_ns - truth_ns) <= host.realtime_bound_ns + 10
        assert host.realtime_bound_ns < 700
    assert [host.synchronized for host in found] == [False, True, False]
    assert [host.max_error_ns for host in found] == [None, 900, None]
    assert [host.tai_offset_s for host in found] == [0, 37, 0]
    assert [host.daemons for host in found] == [["chronyd"], [], []]


def test_what_is_left_around_three_hosts_is_within_what_is_allowed(driver: Driver) -> None:
    (loop,) = filled(driver).total().loops
    assert loop.hosts == NAMES
    assert abs(loop.off_ns) <= loop.bound_ns


def test_before_anything_came_and_where_nothing_comes_it_says_so(driver: Driver) -> None:
    book = filled(driver, 0)
    report = book.interval()
    assert [row.state for row in report.pairs] == [rows.WAITING] * 3
    assert [row.now for row in report.pairs] == [None] * 3
    assert [host.realtime_ns for host in report.hosts] == [None] * 3
    driver.quiet = ["No UDP packet comes through."]
    driver.failed[1] = "c has gone"
    report = book.interval()
    assert [row.state for row in report.pairs] == [rows.SILENT, rows.FAILED, rows.SILENT]
    assert (report.pairs[1].why, report.notes) == ("c has gone", driver.quiet)


def test_a_host_that_nobody_reaches_has_no_wall_clock(driver: Driver) -> None:
    found = filled(driver, pairs=(0,)).total()
    assert [host.realtime_ns is None for host in found.hosts] == [False, False, True]
    assert not found.loops


def test_packets_of_one_direction_and_changes_are_states(driver: Driver) -> None:
    book = filled(driver)
    book.interval()
    made = driver.window(0, 12)
    nothing = np.zeros(0, np.int64)
    book.add(made._replace(samples=replace(made.samples, back=Direction(nothing, nothing))))
    book.add(driver.window(1, 12, changes=(None, Change(1, 2, 1e-6))))
    states = [row.state for row in book.interval().pairs]
    assert states == [rows.ONE_WAY, rows.CHANGED, rows.SILENT]
    assert not book.interval().changes
    assert book.total().pairs[1].changes == 1


def test_what_all_pairs_of_a_host_see_is_told_once(driver: Driver) -> None:
    book = filled(driver)
    book.add(driver.window(0, 12, (None, Change(100, 200, 1e-6, 30_000))))
    book.add(driver.window(2, 12, (Change(110, 210, 1e-6, 30_000), None)))
    book.add(driver.window(0, 13, (None, Change(210, 300, -1e-6))))
    expected = [rows.ChangeRow("b", 1e-6, 30_000), rows.ChangeRow("b", -1e-6, 0)]
    assert book.interval().changes == expected
    assert book.interval().changes == []
    assert book.total().changes == expected
