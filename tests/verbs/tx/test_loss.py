# SPDX-License-Identifier: Apache-2.0
"""Packets that are lost and sent again, and connections that end before their messages are acknowledged."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Tbf, shape
from hopscope.term.format import plural
from tests.lab.measure import MS, NetworkPath, all_discarded, counts, histogram, in_thread, ping, tcp_pair
from tests.verbs.tx.tcp_measure import WAYS, accounted, assert_accounted, assert_each, done, events, read_all, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace

pytestmark = pytest.mark.root

_RULES = "table inet lab {{ chain lab {{ type filter hook {hook} priority 0; tcp dport {port} {match} drop; }}; }}"


@contextlib.contextmanager
def dropping(namespace: Namespace, hook: str, port: int, match: str = "") -> Iterator[None]:
    """Drop packets to a port meanwhile."""
    namespace.run(["nft", _RULES.format(hook=hook, port=port, match=match)], check=True)
    yield
    namespace.run(["nft", "delete table inet lab"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_first_times_are_kept_and_the_rest_counted(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        port = receiver.getsockname()[1]
        assert ping(sender, receiver, 5) == 5
        with dropping(lab.server, "input", port):
            sender.send(bytes(100))
            time.sleep(0.3)
        read_all(receiver, 100)
        # Where its ACK was seen by no tracepoint, as it came in a timer's softirq, this one's is.
        ping(sender, receiver, 1)
        snapshot = done(tx, 7)
        *others, again, _ = events(tx)
    assert_each(snapshot, way, 7)
    assert [message.retransmits for message in others] == [0] * 5
    assert again.retransmits >= 1
    assert f"{plural(again.retransmits, 'retransmitted packet')} with followed messages" in snapshot.notes
    hops = again.hops()
    assert (hops["tx.ack"] or 0) >= 300 * MS
    assert (hops["tx.sched"] or 0) + (hops["tx.qdisc"] or 0) < 100 * MS
    assert again.blame() == ("retransmission", hops["tx.ack"])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_a_firewall_refuses_is_not_sent_yet(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        ping(sender, receiver, 1)
        with dropping(lab.client, "output", receiver.getsockname()[1]):
            sender.send(bytes(100))
            time.sleep(0.3)
        read_all(receiver, 100)
        ping(sender, receiver, 1)
        snapshot = done(tx, 3)
        _, late, _ = events(tx)
    assert_accounted(snapshot, way, 3)
    assert (late.retransmits, late.cause) == (0, "unknown")
    assert (late.hops()["tx.sched"] or 0) >= 300 * MS


def test_what_is_lost_before_the_driver_has_no_driver(lab: Lab, veth: NetworkPath) -> None:
    # A bucket that is too small for the packet drops it, until it is made larger.
    shape(lab.client, "client0", Tbf(rate_bit_s=100_000_000, burst_bytes=500))
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        sender.send(bytes(1400))
        time.sleep(0.3)
        shape(lab.client, "client0", Tbf(rate_bit_s=100_000_000, burst_bytes=50_000))
        read_all(receiver, 1400)
        snapshot = done(tx, 1)
        (message,) = events(tx)
    assert_accounted(snapshot, "stamped", 1)
    assert message.retransmits >= 1
    assert message.driver_ns is None
    assert set(all_discarded(snapshot)) == {(hop, "dropped") for hop in ("tx.qdisc", "tx.driver", "tx.host", "tx.ack")}
    assert (message.total_ns or 0) >= 300 * MS
    assert (message.blame() or ("", 0))[0] == "retransmission"


def test_a_part_of_a_message_is_sent_again(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        # Every 7th packet of the first ones: the end of a message is seldom in what is lost.
        port = receiver.getsockname()[1]
        with (
            in_thread(lambda: read_all(receiver, 2_000_000)),
            dropping(lab.server, "input", port, "numgen inc mod 7 == 3"),
        ):
            for _ in range(20):
                sender.send(bytes(100_000))
        snapshot = done(tx, 20)
        messages = events(tx)
    assert_accounted(snapshot, "stamped", 20)
    (note,) = [note for note in snapshot.notes if note.endswith("with followed messages")]
    retransmits = int(note.split()[0])
    assert retransmits > 0
    # A packet can carry the end of one message and the beginning of the next.
    assert retransmits <= sum(message.retransmits for message in messages) <= 2 * retransmits


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["unread data", "linger"])
def test_a_reset_ends_what_is_in_flight(lab: Lab, veth: NetworkPath, way: str, end: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way) as tx:
        ping(sender, receiver, 3)
        with dropping(lab.server, "input", receiver.getsockname()[1]):
            for _ in range(4):
                sender.send(bytes(100), socket.MSG_EOR)
            if end == "linger":
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                receiver.send(b"never read")
            sender.close()
        snapshot = done(tx, 7 + (end == "unread data"))
        messages = [message for message in events(tx) if message.flow and message.flow.local == "10.77.0.1"]
    assert accounted(snapshot)["tx.total"] == accounted(snapshot)["tx.ack"]
    assert all_discarded(snapshot)["tx.total", "closed"] >= 4
    assert sorted(message.aborted for message in messages) == [False] * 3 + [True] * 4
    assert [message.done_ns for message in messages if message.aborted] == [None] * 4


def test_a_peer_that_vanishes_is_given_up(lab: Lab, veth: NetworkPath) -> None:
    tcp_user_timeout_ms = 300
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, tcp_user_timeout_ms)
        with dropping(lab.server, "input", receiver.getsockname()[1]):
            for _ in range(4):
                sender.send(bytes(100))
            snapshot = done(tx, 4)
            messages = events(tx)
    assert_accounted(snapshot, "stamped", 4)
    assert all_discarded(snapshot)["tx.total", "closed"] == 4
    assert all(message.aborted for message in messages)


@pytest.mark.parametrize("way", WAYS)
def test_a_close_behind_the_last_message_loses_nothing_that_was_acknowledged(
    lab: Lab, veth: NetworkPath, way: str
) -> None:
    with run(lab, way) as tx:
        for _ in range(23):
            with tcp_pair(veth) as (sender, receiver):
                sender.send(bytes(100))
                sender.close()
                read_all(receiver, 100)
                assert receiver.recv(1) == b""
        snapshot = done(tx, 23)
        messages = events(tx)
    assert_accounted(snapshot, way, 23)
    assert not any(message.aborted for message in messages)
    if way == "stamped":
        assert counts(snapshot)["tx.total"] == 23
        assert histogram(snapshot, "tx.ack").count == 23
