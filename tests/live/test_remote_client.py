# SPDX-License-Identifier: Apache-2.0
"""A collector of another host whose agent is strange: it is missing, and why is said; nobody else suffers."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.agent.channel import Channel
from hopscope.agent.serve import Agent
from hopscope.errors import ConnectionLostError, FormatError, HopscopeError, StreamClosedError
from hopscope.live.remote.client import RemoteCollector, RemoteFound
from hopscope.live.remote.fleet import Fleet
from tests.agent.pair import pipes
from tests.lab.snapshots import message
from tests.lab.strange_live import snapshot
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOON_S = 20.0


@contextmanager
def channel(name: str) -> Iterator[Channel]:
    """Yield the channel to an agent that is strange."""
    here, there = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(Agent, pipes(there), {"live": "tests.lab.strange_live"})
        with Channel(pipes(here), "client", name) as made, pending.result():
            yield made


def nowhere() -> Channel:
    """Do not come back."""
    raise ConnectionLostError("It is gone for good", how="ended")


@contextmanager
def hosts(*manners: str, reconnect: Callable[[], Channel] = nowhere) -> Iterator[Fleet[Any]]:
    """Yield the collectors of hosts, called by their manners."""
    with (
        contextmanagers(manners) as channels,
        Fleet(
            [RemoteCollector(each, reconnect, "rx", [manner]) for each, manner in zip(channels, manners, strict=True)]
        ) as fleet,
    ):
        yield fleet


@contextmanager
def contextmanagers(manners: tuple[str, ...]) -> Iterator[list[Channel]]:
    if not manners:
        yield []
        return
    with channel(manners[0]) as first, contextmanagers(manners[1:]) as others:
        yield [first, *others]


@pytest.mark.parametrize(
    ("manner", "error", "said"),
    [
        ("block first", FormatError, "begins with its plan"),
        ("plan", FormatError, "plan of A plan has no valid point"),
        ("ends", StreamClosedError, "ended the measurement"),
    ],
)
def test_strange_beginning_is_an_error(manner: str, error: type[HopscopeError], said: str) -> None:
    with pytest.raises(error, match=said), hosts("well", manner):
        pass


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("message", "sends blocks alone"),
        ("kind", "A block has no valid kind"),
        ("garbled", "A message is not JSON"),
        ("other verb", "snapshot of An answer has no valid schema"),
        ("slowest", "slowest of An answer has no valid schema"),
        ("negative", "has no valid count"),
        ("too many", "is not a number of samples"),
        ("messages", "messages of A batch of messages has no valid schema"),
        ("leaves", "its agent ended the measurement"),
    ],
)
def test_strange_answer_makes_that_host_missing_alone(manner: str, said: str) -> None:
    with hosts("well", manner) as fleet:
        began_ns = time.time_ns()
        until_s = time.monotonic() + SOON_S
        while True:
            fleet.measure_cost(0.0)
            well, strange = fleet.interval().hosts
            assert (well.snapshot, well.absences) == (snapshot(23), [])
            assert strange.snapshot is None
            (absence,) = strange.absences
            if said in absence.reason:
                break
            assert "gone for good" in absence.reason or "not answered yet" in absence.reason
            assert time.monotonic() < until_s
        assert absence.until_ns is None
        assert absence.from_ns <= time.time_ns()
        total = fleet.total()
        assert list(total.found()) == ["well"]
        assert total.found()["well"].hops[0].histogram.count == 46
        assert total.at_ns >= began_ns


def test_host_that_comes_back_goes_on_and_its_total_is_of_both_times() -> None:
    with channel("leaves") as again:
        again.name = "leaves"
        with hosts("leaves", reconnect=lambda: again) as fleet:
            (host,) = fleet.hosts
            host._request = {"verb": "rx", "words": ["well"]}  # what it does when it is asked again
            fleet.measure_cost(0.0)

            def is_back() -> bool:
                if fleet.interval().found():
                    return True
                fleet.measure_cost(0.0)
                return False

            eventually(is_back, "it does not come back")
            fleet.measure_cost(0.0)
            assert fleet.interval().found()["leaves"] == snapshot(23)
            (report,) = fleet.total().hosts
            assert report.absences[0].until_ns is not None
            assert report.snapshot.hops[0].histogram.count == 46


def test_messages_wait_until_they_are_fetched() -> None:
    found = RemoteFound()
    found.add([message()], 7)
    found.add([message(pid=4)], 8)
    assert (found.fetch(), found.fetch(), found.offset_ns) == ([message(), message(pid=4)], [], 8)
    assert found.slowest("interval") is None
