# SPDX-License-Identifier: Apache-2.0
"""Datagrams that wait in queues: as long as backlog and rate say; and those that a full one drops."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab.netlink import Tbf
from hopscope.lab.veth import shape
from tests.lab.measure import MS, NetworkPath, all_discarded, counts, histogram, udp_pair
from tests.verbs.tx.measure import UDP_HOPS, devices, messages, run_udp, vxlan
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab, Namespace
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.tx.collector import TxCollector

pytestmark = pytest.mark.root

# IPv4, UDP and Ethernet headers, which a qdisc counts; and what VXLAN adds.
HEADERS_BYTES = 42
VXLAN_BYTES = 50
RATE_BIT_S = 4_000_000
BUCKET_BYTES = 2000
BURST = 50
LEAST_BYTES = 900


def qdisc(namespace: Namespace, ifname: str) -> dict[str, Any]:
    words = ["tc", "-s", "-j", "qdisc", "show", "dev", ifname, "root"]
    done = namespace.run(words, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found[0]


def sent_through_a_bucket(lab: Lab, path: NetworkPath, headers_bytes: int) -> tuple[Snapshot, list[Message], int]:
    """Send a burst, and check how long each datagram waits for those before it and itself to pass the bucket.

    The bucket's timer may find this machine idle, where hooks are not run for lack of a process: those are left out.
    Each datagram has a length of its own, by which it is known.

    Returns
    -------
    tuple
        What was seen, the datagrams, and how long the calls took that sent them.
    """
    shape(lab.client, "client0", Tbf(rate_bit_s=RATE_BIT_S, burst_bytes=BUCKET_BYTES, limit_bytes=1_000_000))
    with udp_pair(path) as (sender, receiver), run_udp(lab, events=True) as tx:
        began_ns = time.monotonic_ns()
        for number in range(BURST):
            sender.send(bytes(LEAST_BYTES + number))
        took_ns = time.monotonic_ns() - began_ns
        read_ns = {len(receiver.recv(2000)): time.monotonic_ns() for _ in range(BURST)}
        snapshot, single = tx.interval(), messages(tx)
    assert counts(snapshot)["tx.udp"] == BURST
    assert len(single) > BURST // 2
    assert single[0].len_bytes == LEAST_BYTES  # it goes at once, without the timer
    expected_ns = []
    for message in single:
        behind_bytes = sum(length + headers_bytes for length in range(LEAST_BYTES, message.len_bytes + 1))
        due_ns = max(behind_bytes - BUCKET_BYTES, 0) * 8 / RATE_BIT_S * 1e9
        expected_ns.append(max(due_ns - ((message.sched_ns or 0) - (single[0].sched_ns or 0)), 0))
    for message, least_ns in zip(single, expected_ns, strict=True):
        assert least_ns - 0.1 * max(expected_ns) <= (message.qdisc_ns or 0)
        assert (message.sched_ns or 0) + (message.qdisc_ns or 0) < read_ns[message.len_bytes]
    assert max(message.qdisc_ns or 0 for message in single) > 50 * MS
    return snapshot, single, took_ns


def test_the_queue_hop_is_backlog_through_rate(lab: Lab, veth: NetworkPath) -> None:
    snapshot, single, took_ns = sent_through_a_bucket(lab, veth, HEADERS_BYTES)
    waited_ns = [message.qdisc_ns or 0 for message in single]
    hop = histogram(snapshot, "tx.udp_qdisc")
    assert (hop.count, hop.max_ns, hop.sum_ns) == (len(single), max(waited_ns), sum(waited_ns))
    assert histogram(snapshot, "tx.udp").sum_ns <= took_ns


def test_a_queue_below_another_device_is_in_the_queue_hop(lab: Lab) -> None:
    with vxlan(lab) as path:
        _, single, _ = sent_through_a_bucket(lab, path, HEADERS_BYTES + VXLAN_BYTES)
    assert devices(single) == {("vxlan7", "client0")}


@pytest.mark.parametrize("kind", ["pfifo limit 7", "bfifo limit 9000"])
def test_drops_of_a_full_queue_are_those_of_its_own_count(lab: Lab, veth: NetworkPath, kind: str) -> None:
    rate = ["qdisc", "replace", "dev", "client0", "root", "handle", "1:", "tbf", "rate", "10kbit"]
    lab.client.run(["tc", *rate, "burst", "2000", "limit", "1000000"], check=True)
    lab.client.run(["tc", "qdisc", "add", "dev", "client0", "parent", "1:1", *kind.split()], check=True)
    with udp_pair(veth) as (sender, receiver), run_udp(lab, events=True) as tx:
        for _ in range(101):
            sender.send(bytes(1000))
        receiver.recv(2000)
        snapshot, single = tx.interval(), messages(tx)
        dropped = qdisc(lab.client, "client0")["drops"]
    assert dropped > 80
    assert counts(snapshot)["tx.udp"] == 101
    assert all_discarded(snapshot) == {(hop, "dropped"): dropped for hop in UDP_HOPS[1:]}
    assert [message.aborted for message in single].count(True) == dropped
    assert {message.done_ns for message in single if message.aborted} == {None}


def test_a_drop_is_counted_whichever_hop_is_asked_for(lab: Lab, veth: NetworkPath) -> None:
    shape(lab.client, "client0", Tbf(rate_bit_s=8000, burst_bytes=2000, limit_bytes=2000))
    with udp_pair(veth) as (sender, _), run_udp(lab, hops=["tx.udp_total"]) as tx:
        for _ in range(23):
            sender.send(bytes(1000))
        snapshot = tx.interval()
        dropped = qdisc(lab.client, "client0")["drops"]
    assert dropped > 15
    assert all_discarded(snapshot) == {("tx.udp_total", "dropped"): dropped}


def test_many_packets_in_the_queue_keep_apart(lab: Lab, veth: NetworkPath) -> None:
    held = 3000
    shape(lab.client, "client0", Tbf(rate_bit_s=100_000, burst_bytes=2000, limit_bytes=4_000_000))
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(udp_pair(veth)) for _ in range(30)]
        tx = stack.enter_context(run_udp(lab))
        for sender, _ in flows:
            for _ in range(held // len(flows)):
                sender.send(b"x")
        shape(lab.client, "client0", Tbf(rate_bit_s=10**9, burst_bytes=100_000, limit_bytes=4_000_000))
        flows[0][0].send(b"x")
        eventually(lambda: ended(tx) >= held, "packets stay in the queue")
    # Some runs of hooks may be missing, but hardly any for want of a place.
    assert counts(tx.total())["tx.udp"] == held + 1
    assert replaced(tx) < held // 100


def ended(tx: TxCollector) -> int:
    """Return how many datagrams have left, by now."""
    tx.interval()
    return counts(tx.total())["tx.udp_total"] + replaced(tx)


def replaced(tx: TxCollector) -> int:
    return all_discarded(tx.total()).get(("tx.udp_total", "no_stamp"), 0)
