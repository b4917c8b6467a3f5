# SPDX-License-Identifier: Apache-2.0
"""That cases are what they say: told by clocks, by the scheduler and by TCP, without hopscope."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopscope.model.cause import BY_NAME
from tests import leftovers
from tests.lab.causes import mixed
from tests.lab.causes.catalogue import HEALTHY, LACKING, SCENARIOS, SINGLE, case, cases

_ATTEMPTS = 4


def test_the_same_seed_has_the_same_cases_and_another_one_others() -> None:
    def shown(seed: int) -> list[str]:
        return [f"{each.name} {each.port} {each.plan.reader} {each.plan.sender}" for each in cases(60, seed)]

    assert shown(1) == shown(1)
    assert not {*shown(1)} & {*shown(2)}


def test_no_case_is_like_another() -> None:
    plans = [(each.name, str(each.plan.reader), str(each.plan.sender), str(each.plan.wire)) for each in cases(200)]
    assert len({*plans}) == len({each.port for each in cases(200)}) == 200


def test_a_case_alone_is_what_it_is_among_others() -> None:
    for among in cases(40, 7):
        assert case(among.name, among.number, 7).plan.sender == among.plan.sender


def test_all_kinds_are_among_two_hundred() -> None:
    names = {each.name for each in cases(200)}
    assert names == {*SINGLE, *HEALTHY, *LACKING, *mixed.SCENARIOS}


def test_truths_have_names_of_the_model_and_are_most_of_the_time() -> None:
    for each in cases(200):
        truth = each.plan.truth
        assert {*truth} <= {*BY_NAME}
        assert not truth or 0.6 <= sum(truth.values()) <= 1.001, each


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LACKING])
def test_happens_as_it_is_meant(name: str) -> None:
    before = leftovers.seen()
    made = case(name, 0, 3)
    why_not = ""
    for attempt in range(_ATTEMPTS):
        ran = made.run(attempt)
        why_not = made.as_meant(ran)
        if not why_not:
            break
    assert not why_not
    assert not leftovers.left_since(before)
    assert not [*Path("/sys/fs/cgroup").glob("**/hopscope-causes-*")]


@pytest.mark.root
@pytest.mark.alone
def test_a_case_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = leftovers.seen()
    made = case("throttled", 0, 3)
    monkeypatch.setitem(made.plan.sender, "count", "none")
    with pytest.raises(RuntimeError, match="sender ended"):
        made.run()
    assert not leftovers.left_since(before)
    assert not [*Path("/sys/fs/cgroup").glob("**/hopscope-causes-*")]
