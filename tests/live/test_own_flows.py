# SPDX-License-Identifier: Apache-2.0
"""What hopscope itself sends and receives is left out of ``rx``, ``tx`` and ``drops``, and nothing else."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.live.recorder.options import RecordOptions
from hopscope.verbs.drops.collector import DropCollector
from tests.lab.measure import TCP_DATA_HOPS, UDP_DATA_HOPS, assert_each, counts, ping, run, tcp_pair, udp_pair, way
from tests.verbs.record.test_own import PAIRS, flow_of
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, messages, run_udp
from tests.verbs.tx.tcp_measure import HOPS, done
from tests.verbs.tx.tcp_measure import run as run_tcp

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root
DATA_HOPS = {"udp": UDP_DATA_HOPS, "tcp": TCP_DATA_HOPS}


def send_to_nobody(sender: socket.socket, count: int) -> None:
    """Send so many datagrams, of which each may say that the one before was refused, and is then not sent."""
    sent = 0
    while sent < count:
        with contextlib.suppress(ConnectionRefusedError):
            sent += sender.send(b"x")


@pytest.mark.parametrize("protocol", PAIRS)
@pytest.mark.parametrize("name", ["veth-4", "veth-6", "lo-4"])
def test_rx_counts_the_others_alone(lab: Lab, protocol: str, name: str) -> None:
    with PAIRS[protocol](path := way(lab, name)) as own, PAIRS[protocol](path) as other:
        rx = run(lab, protocol=protocol)
        rx.leave_out([flow_of(protocol, own[0])])
        with rx:
            for _ in range(23):
                assert ping(*own, 3) + ping(*other, 1) == 4
            assert_each(rx.interval(), DATA_HOPS[protocol], 23)


def test_rx_counts_the_others_alone_before_a_socket_is_known(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as own, udp_pair(veth) as other:
        rx = run(lab, interfaces=[(lab.server.call(socket.if_nametoindex, "server0"), lab.server.inode)])
        rx.leave_out([flow_of("udp", own[0])])
        with rx:
            assert ping(*own, 101) + ping(*other, 23) == 124
            found = counts(rx.interval())
    assert (found["rx.core"], found["rx.ip"]) == (23, 23)


def test_bytes_of_ours_that_were_not_seen_arriving_are_no_loss(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as (sender, receiver):
        sender.send(bytes(100))
        rx = run(lab)
        rx.leave_out([flow_of("tcp", sender)])
        with rx:
            assert len(receiver.recv(100)) == 100
            assert ping(sender, receiver, 3) == 3
            snapshot = rx.interval()
    assert not [row for row in snapshot.discarded if row.hop == "rx.tcp_read"]
    assert not [row for row in snapshot.hops if row.hop.startswith("rx.tcp_") and row.histogram.count]


@pytest.mark.parametrize("tcp_way", HOPS)
def test_tx_counts_the_messages_of_others_alone(lab: Lab, veth: NetworkPath, tcp_way: str) -> None:
    with tcp_pair(veth) as own, tcp_pair(veth) as other, tcp_pair(veth) as later:
        tx = run_tcp(lab, tcp_way)
        tx.leave_out([flow_of("tcp", own[0])])
        with tx:
            for _ in range(23):
                assert ping(*own, 3) + ping(*other, 1) == 4
            assert_seen(done(tx, 23), ("tx.total",), 23)
            # A socket whose messages were followed already may turn out to be ours.
            assert ping(*later, 5) == 5
            done(tx, 28)
            tx.leave_out([flow_of("tcp", own[0]), flow_of("tcp", later[0])])
            assert ping(*later, 7) + ping(*own, 7) + ping(*other, 1) == 15
            assert_seen(done(tx, 29), ("tx.total",), 29)
            followed = {message.flow.local_port for message in messages(tx) if message.flow}
            assert followed == {other[0].getsockname()[1], later[0].getsockname()[1]}


def test_tx_counts_the_datagrams_of_others_alone(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as own, udp_pair(either) as other:
        tx = run_udp(lab)
        tx.leave_out([flow_of("udp", own[0])])
        with tx:
            assert ping(*own, 101) + ping(*other, 23) == 124
            assert_seen(tx.interval(), UDP_HOPS, 23)


def test_drops_counts_the_others_alone(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as own, udp_pair(veth) as other:
        for _, receiver in (own, other):
            receiver.close()
        drops = DropCollector(RecordOptions(profiles=(), points=("skb.drop",), namespaces=[lab.server.inode]), ["flow"])
        peer = other[0].getpeername()
        drops.leave_out([flow_of("udp", own[0])])
        with drops:
            for sender, count in ((own[0], 101), (other[0], 23)):
                send_to_nobody(sender, count)
            (row,) = [row for row in drops.interval().rows if row.group["flow"].startswith("udp")]
    assert (row.count, row.group["flow"].endswith(f":{peer[1]}")) == (23, True)
