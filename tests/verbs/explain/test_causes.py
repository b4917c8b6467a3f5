# SPDX-License-Identifier: Apache-2.0
"""Each cause that can be provoked in namespaces, on live traffic: ``explain`` names it, its share, and who it is.

What the share really was is told by clocks and the kernel's own accounts (:mod:`tests.lab.causes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from bench.causes import _recorded, make
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.explain.analysis import explain
from tests.lab.causes.catalogue import LACKING, case

if TYPE_CHECKING:
    from pathlib import Path

    from bench.causes import Made
    from hopscope.verbs.explain.explanation import Explanation

SEED: Final = 11
# Those that are taken for each other stand together.
NAMED: Final = (
    *("asleep", "stopped", "no CPU", "throttled", "computing", "computing, interrupted"),
    *("window, far", "window, slow reader", "slow start", "pacing", "Nagle", "cork", "more to come", "small queue"),
    *("send buffer", "send lock", "rate", "own ahead", "others ahead", "lost", "hole", "neighbour", "application"),
    *("running, asleep", "nagle, asleep"),
)
HEALTHY: Final = ("healthy, asking", "healthy, streaming")
# A share is what some clock says, which begins and ends elsewhere.
SHARE_ERROR: Final = 0.2
# What else limits a small queue, and how long a wire in user space takes, others do not tell.
_ROUGH: Final = frozenset({"small queue", "hole"})

pytestmark = pytest.mark.root


class Told(NamedTuple):
    """A case that ran, and what is said of it."""

    made: Made
    explanation: Explanation


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Return what is said of each case, all of one recording."""
    folder = tmp_path_factory.mktemp("causes") / "trace"
    with _recorded(folder, ("-P", "all")):
        made = [make(case(name, number, SEED)) for number, name in enumerate((*NAMED, *HEALTHY))]
    return {each.case.name: Told(each, explained(folder, each)) for each in made}


def explained(folder: Path, made: Made) -> Explanation:
    with Trace(folder) as trace:
        return explain(trace, Selection(ports=[made.case.at(made.attempt)]))


@pytest.mark.parametrize("name", NAMED)
def test_the_cause_is_named(told: dict[str, Told], name: str) -> None:
    made, explanation = told[name]
    if made.why_not:
        pytest.skip(f"the machine was too busy for this case: {made.why_not}")
    assert explanation.finding == made.truth
    (main,) = [each for each in explanation.causes if each.cause == made.truth]
    if name not in _ROUGH:
        assert main.share == pytest.approx(made.case.plan.proof(made.ran)[made.truth], abs=SHARE_ERROR)
    assert made.case.plan.culprit in f"{main.culprit} {main.sentence} {' '.join(main.evidence)}"
    assert sum(each.time_ns for each in explanation.causes) == explanation.total_ns


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_where_nothing_is_wrong(told: dict[str, Told], name: str) -> None:
    made, explanation = told[name]
    if made.why_not:
        pytest.skip(f"the machine was too busy for this case: {made.why_not}")
    assert explanation.finding is None


@pytest.mark.parametrize("name", ["computing (-P tx)", "window, far (-P rx)"])
def test_no_wrong_cause_is_named_where_evidence_lacks(tmp_path: Path, name: str) -> None:
    assert name in LACKING
    wanted = case(name, 0, SEED)
    with _recorded(tmp_path / "trace", wanted.plan.record):
        made = make(wanted)
    explanation = explained(tmp_path / "trace", made)
    assert explanation.finding in {None, "unknown"}
    assert explanation.limits
