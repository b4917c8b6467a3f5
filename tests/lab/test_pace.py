# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.lab import pace
from hopscope.lab.pace import Budget, Ended, Tally


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.slept_s.append(duration_s)
        self.now_s += duration_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def test_budget_ends_at_its_count(clock: Clock) -> None:
    budget = Budget(count=23)
    clock.now_s += 1
    assert budget.over(22) is None
    assert budget.over(23) is Ended.COUNT


def test_budget_s_duration_begins_with_start(clock: Clock) -> None:
    budget = Budget(duration_s=2)
    clock.now_s += 5
    assert budget.over(0) is None
    budget.start()
    clock.now_s += 1.9
    assert budget.over(0) is None
    clock.now_s += 0.2
    assert budget.over(0) is Ended.DURATION


def test_budget_s_limit_begins_when_it_is_made(clock: Clock) -> None:
    budget = Budget(limit_s=30)
    clock.now_s += 29
    budget.start()
    assert budget.over(0) is None
    clock.now_s += 1
    assert budget.over(0) is Ended.LIMIT


@pytest.mark.usefixtures("clock")
def test_budget_ends_when_stopped() -> None:
    budget = Budget()
    budget.stop()
    assert budget.over(0) is Ended.SIGNAL


def test_turns_come_at_the_rate(clock: Clock) -> None:
    budget = Budget(rate_s=100)
    budget.start()
    start_s = clock.now_s
    for messages in range(23):
        budget.wait_turn(messages)
        # The last 60 microseconds are not slept.
        assert start_s + messages / 100 - 60e-6 <= clock.now_s <= start_s + messages / 100 + 1e-9


def test_a_turn_never_comes_after_the_end(clock: Clock) -> None:
    budget = Budget(rate_s=0.01, duration_s=2)
    budget.start()
    budget.wait_turn(1)
    assert sum(clock.slept_s) == pytest.approx(2, abs=1e-3)


def test_without_a_rate_nothing_waits(clock: Clock) -> None:
    budget = Budget()
    budget.start()
    budget.wait_turn(1_000_000)
    assert not clock.slept_s


def test_summary_counts_and_times_from_first_to_last(clock: Clock) -> None:
    tally = Tally()
    clock.now_s += 10
    tally.add(2, 100)
    clock.now_s += 3
    tally.add(1, 50)
    clock.now_s += 10
    summary = tally.summary(Ended.EOF)
    assert (summary.messages, summary.len_bytes, summary.ended) == (3, 150, Ended.EOF)
    assert summary.duration_s == pytest.approx(3)
