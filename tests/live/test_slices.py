# SPDX-License-Identifier: Apache-2.0
"""Measuring in slices: what counts, for how much, and that no time without programs is taken for a duration."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from hopscope.errors import KernelError
from hopscope.lab import Tbf, shape
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
from tests import leftovers
from tests.lab.measure import (
    MS,
    NetworkPath,
    all_discarded,
    histogram,
    in_thread,
    run,
    tcp_pair,
    udp_pair,
    wait_acknowledged,
)
from tests.verbs.tx.measure import run_tx, total_when
from tests.waiting import eventually, state

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from hopscope.live.slices import Covered, Slices
    from hopscope.model.sampled import Coverage
    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root

GAP_S = 0.3
PAIRS = {"udp": udp_pair, "tcp": tcp_pair}


class ByHand:
    """Stands in for the budget: slices begin and end when a test says so."""

    slices: Slices
    first: Covered

    def __init__(self, percent: float, slices: Slices, *_: object) -> None:
        type(self).slices, type(self).first, self.percent = slices, slices.covered, percent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def interval(self) -> None:
        self.slices.count()

    def coverage(self, _: str) -> Coverage:
        return self.slices.covered.since(self.first, self.percent)

    def notes(self) -> list[str]:
        return []


@pytest.fixture(scope="module", autouse=True)
def _attaches_again() -> None:
    try:
        with RxCollector(RxOptions(budget=1.0)), TxCollector(TxOptions(budget=1.0)):
            pass
    except KernelError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> type[ByHand]:
    monkeypatch.setattr("hopscope.verbs.rx.collector.Budget", ByHand)
    monkeypatch.setattr("hopscope.verbs.tx.collector.Budget", ByHand)
    return ByHand


def budgeted(lab: Lab, **options: Any) -> RxCollector:  # noqa: ANN401 # whatever RxOptions takes
    return run(lab, budget=1.0, **options)


def pause() -> None:
    """Let programs be detached for a while."""
    ByHand.slices.close()
    ByHand.slices.detach()
    time.sleep(GAP_S)
    ByHand.slices.attach()


def total(collector: RxCollector | TxCollector) -> Snapshot:
    """End the slice, and return all that counts."""
    ByHand.slices.close()
    ByHand.slices.detach()
    collector.interval()
    return collector.total()


def longest_ns(snapshot: Snapshot) -> int:
    return max(row.histogram.max_ns for row in snapshot.hops)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_what_waits_in_a_socket_over_a_gap_is_no_sample(lab: Lab, either: NetworkPath, protocol: str) -> None:
    with budgeted(lab) as rx, PAIRS[protocol](either) as (sender, receiver):
        sender.send(bytes(100))
        assert receiver.recv(100) == bytes(100)
        sender.send(b"x" * 100)  # waits
        pause()
        assert receiver.recv(100) == b"x" * 100
        for _ in range(5):
            sender.send(bytes(100))
            receiver.recv(100)
        snapshot = total(rx)
    assert snapshot.coverage
    assert snapshot.coverage.slices == 1
    assert longest_ns(snapshot) < GAP_S * 1000 * MS
    # The one before the gap counts once; those of the slice stand for what may have come in the gap, too.
    assert histogram(snapshot, f"rx.{protocol}_total").count > 1 + 5
    reasons = {reason for (hop, reason), count in all_discarded(snapshot).items() if count and "_read" in hop}
    assert reasons <= {"no_stamp", "unseen"}


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_reader_that_slept_over_a_gap_is_timed_from_what_wakes_it(
    lab: Lab, either: NetworkPath, protocol: str
) -> None:
    readers: list[int] = []

    def read(receiver: socket.socket) -> None:
        readers.append(threading.get_native_id())
        assert receiver.recv(100) == bytes(100)

    with (
        budgeted(lab) as rx,
        PAIRS[protocol](either) as (sender, receiver),
        in_thread(lambda: read(receiver)) as thread,
    ):
        eventually(lambda: readers and state(readers[0]) == "S")
        pause()
        sender.send(bytes(100))
        thread.join()
        snapshot = total(rx)
    assert histogram(snapshot, f"rx.{protocol}_total").count > 0
    assert longest_ns(snapshot) < GAP_S * 1000 * MS


def own_links() -> set[int]:
    """Return the numbers of the links that this process holds."""
    return {number for kind, number in leftovers.held_by([os.getpid()]) if kind == "link"}


def test_nothing_is_attached_in_a_gap(lab: Lab) -> None:
    with budgeted(lab):
        attached = own_links()
        ByHand.slices.close()
        ByHand.slices.detach()
        assert own_links() == set()
        ByHand.slices.attach()
        again = own_links()
        assert again
        assert not again & attached
    assert own_links() == set()


def test_packets_that_are_left_out_by_chance_are_estimated(lab: Lab, veth: NetworkPath) -> None:
    sent, halvings = 4000, 3
    with budgeted(lab, protocol="udp") as rx, udp_pair(veth) as (sender, receiver):
        ByHand.slices.follow(halvings)
        for _ in range(sent):
            sender.send(bytes(20))
            receiver.recv(20)
        snapshot = total(rx)
    scatter = (sent * (2**halvings - 1)) ** 0.5
    for hop in ("rx.udp", "rx.udp_queue", "rx.udp_total"):
        found = histogram(snapshot, hop).count
        assert found != sent
        assert abs(found - sent) < 5 * scatter
    (row,) = [row for row in snapshot.hops if row.hop == "rx.udp_total"]
    assert row.bounds
    assert row.bounds["p50"]
    middle = row.histogram.percentile(50)
    assert middle
    assert row.bounds["p50"][0] <= middle


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_what_leaves_over_a_gap_is_no_sample_and_what_is_sent_later_is(
    lab: Lab, veth: NetworkPath, protocol: str
) -> None:
    """A queue holds what was sent while programs were attached until they are again."""
    shape(veth.sender, "client0", Tbf(250_000, burst_bytes=2000, limit_bytes=1 << 20))
    with run_tx(lab, budget=1.0) as tx, PAIRS[protocol](veth) as (sender, receiver):
        size = 1000
        for _ in range(60):  # two seconds
            sender.send(bytes(size))
        ByHand.slices.close()
        ByHand.slices.detach()
        time.sleep(GAP_S)
        ByHand.slices.attach()
        left = 60 * size
        while left:
            left -= len(receiver.recv(min(left, 1 << 16)))
        if protocol == "tcp":
            wait_acknowledged(sender)
        for _ in range(3):
            sender.send(bytes(size))
            assert len(receiver.recv(size, socket.MSG_WAITALL)) == size
        if protocol == "tcp":
            wait_acknowledged(sender)
        snapshot = total(tx)
    hop = "tx.total" if protocol == "tcp" else "tx.udp_total"
    assert histogram(snapshot, hop).count > 0
    assert longest_ns(snapshot) < GAP_S * 1000 * MS


def test_sent_messages_that_are_left_out_by_chance_are_estimated(lab: Lab, veth: NetworkPath) -> None:
    sent = 1000
    with run_tx(lab, budget=1.0) as tx, tcp_pair(veth) as (sender, receiver):
        ByHand.slices.follow(2)
        for _ in range(sent):
            sender.send(bytes(20))
            receiver.recv(20)
        wait_acknowledged(sender)
        snapshot = total_when(tx, "tx.sched", 1)
    found = histogram(snapshot, "tx.sched").count
    assert abs(found - sent) < 5 * (sent * 3) ** 0.5
