# SPDX-License-Identifier: Apache-2.0
"""Each cause that can be provoked in namespaces, on live traffic: ``explain`` names it, its share, and who it is.

The true shares come from clocks and the kernel's own accounts (:mod:`tests.lab.causes`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from bench.causes import make, recorded
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.explain.analysis import explain
from tests.lab.causes.catalogue import LACKING, case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.causes import Made
    from hopscope.verbs.explain.explanation import Explanation

SEED: Final = 11
# Those that are taken for each other stand together; `make bench ARGS=causes` has more.
NAMED: Final = (
    *("asleep", "stopped", "no CPU", "throttled", "computing", "computing, interrupted"),
    *("window, far", "window, slow reader", "slow start", "pacing", "Nagle", "cork"),
    *(
        "send buffer",
        "send lock",
        "rate",
        "others ahead",
        "lost",
        "lost, queue",
        "hole",
        "neighbour",
        "receive buffer full",
    ),
    *("application", "netfilter", "netfilter, sending", "softirq", "poller", "GRO"),
)
# Another one of these has the same cause.
ALIKE: Final = frozenset(
    {"stopped", "computing, interrupted", "window, slow reader", "lost, queue", "netfilter, sending", "poller"}
)
HEALTHY: Final = ("healthy, asking", "healthy, streaming")
# Whose time goes by without a CPU: others beside them make no difference.
BESIDE: Final = (
    *("asleep", "stopped", "window, far", "window, slow reader", "slow start", "pacing", "Nagle", "cork"),
    *("send buffer", "rate", "others ahead", "lost", "lost, queue", "hole", "neighbour", "receive buffer full"),
)
AT_ONCE: Final = 4
# A share is what some clock says, which begins and ends elsewhere.
SHARE_ERROR: Final = 0.2
# Other tests run beside these, and take the CPUs away from a case.
ATTEMPTS: Final = 3

pytestmark = pytest.mark.root


class Told(NamedTuple):
    """A case that ran, and what is said of it."""

    made: Made
    explanation: Explanation


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Return what is said of each case that is asked for.

    Those that need a CPU of their own run one by one, and are explained while the others run side by side.
    """
    folder = tmp_path_factory.mktemp("causes")
    asked_for = {str(item.callspec.params.get("name")) for item in request.session.items if hasattr(item, "callspec")}
    wanted = [
        case(name, number, SEED)
        for number, name in enumerate((*NAMED, *HEALTHY))
        if name in asked_for or name not in ALIKE
    ]
    with ThreadPoolExecutor(2) as explaining:
        with recorded(folder / "alone", ("-P", "all")) as recorder:
            made = [make(each, recorder) for each in wanted if each.name not in BESIDE]
        asked = [explaining.submit(all_told, folder / "alone", made)]
        with recorded(folder / "beside", ("-P", "all")), ThreadPoolExecutor(AT_ONCE) as pool:
            beside = list(pool.map(make, [each for each in wanted if each.name in BESIDE]))
        asked += [explaining.submit(all_told, folder / "beside", part) for part in (beside[::2], beside[1::2])]
        return {each.made.case.name: each for some in asked for each in some.result()}


def all_told(folder: Path, made: Iterable[Made]) -> list[Told]:
    with Trace(folder) as trace:
        return [Told(each, explain(trace, Selection(ports=[each.case.at(each.attempt)]))) for each in made]


def settled(first: Told, folder: Path, why_not: Callable[[Told], str]) -> str:
    """Return why what is said of a case is wrong, when it has been made again where it was; nothing if it is not."""
    told, wrong = first, why_not(first)
    for attempt in range(1, ATTEMPTS):
        if not wrong:
            break
        with recorded(folder / str(attempt), told.made.case.plan.record) as recorder:
            made = make(told.made.case, recorder)
        (told,) = all_told(folder / str(attempt), [made])
        wrong = why_not(told)
    return wrong


def misnamed(told: Told) -> str:
    """Return what is wrong with what is said of a case with a cause."""
    made, explanation = told
    causes = {each.cause: each for each in explanation.causes}
    if explanation.finding != made.truth:
        return f"{explanation.finding} is named, and not {made.truth}"
    main, truth = causes[made.truth], made.case.plan.proof(made.ran)[made.truth]
    # A wire in user space takes its time: the driver's.
    wire = causes["driver"].share if made.case.plan.wire and "driver" in causes else 0
    if not truth - SHARE_ERROR - wire <= main.share <= truth + SHARE_ERROR:
        return f"its share is {main.share:.2f}, and not {truth:.2f}"
    if made.case.plan.culprit not in f"{main.culprit} {main.sentence} {' '.join(main.evidence)}":
        return f"{main.culprit} is named ({main.sentence}), and not {made.case.plan.culprit}"
    if sum(each.time_ns for each in explanation.causes) != explanation.total_ns:
        return "the causes do not add up to the messages' time"
    return ""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in ALIKE else ()) for each in NAMED]
)
def test_the_cause_is_named(told: dict[str, Told], tmp_path: Path, name: str) -> None:
    assert settled(told[name], tmp_path, misnamed) == ""


def test_datagrams_that_a_full_buffer_refused_are_counted_with_the_reason(told: dict[str, Told]) -> None:
    """The applications' own count: of those that were sent, the reader had all but these."""
    made, explanation = told["receive buffer full"]
    sent, read = int(made.case.plan.sender["count"]), len(made.ran.messages)
    assert read < sent
    (sentence,) = explanation.dropped
    assert sentence.startswith(f"{sent - read} of {sent} messages were dropped on this host (SOCKET_RCVBUFF")
    assert "SO_RCVBUF" in sentence


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_where_nothing_is_wrong(told: dict[str, Told], tmp_path: Path, name: str) -> None:
    def why_not(each: Told) -> str:
        return each.explanation.finding or ""

    first = told[name]
    if first.made.why_not:
        pytest.skip(f"the machine was too busy for this case: {first.made.why_not}")
    assert settled(first, tmp_path, why_not) == ""


@pytest.mark.parametrize("name", ["computing (-P tx)", "hole (-P tx)", "window, far (-P rx)"])
def test_no_wrong_cause_is_named_where_evidence_lacks(tmp_path: Path, name: str) -> None:
    def why_not(each: Told) -> str:
        finding, limits = each.explanation.finding, each.explanation.limits
        allowed = {None, "unknown", each.made.case.plan.shows}
        return "" if finding in allowed and limits else f"{finding} is named; limits: {limits}"

    assert name in LACKING
    wanted = case(name, 0, SEED)
    with recorded(tmp_path / "trace", wanted.plan.record) as recorder:
        made = make(wanted, recorder)
    (first,) = all_told(tmp_path / "trace", [made])
    assert settled(first, tmp_path, why_not) == ""
