# SPDX-License-Identifier: Apache-2.0
"""Datagrams that come as one packet (UDP_SEGMENT) to a socket that wants each, as QUIC between containers does."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from hopscope.lab import Lab
from tests.lab.measure import UDP_DATA_HOPS, all_discarded, assert_each, histogram, ping, run, tcp_pair, udp_pair, way
from tests.verbs.cpu.test_softirq import NAPI

pytestmark = pytest.mark.root
UDP_SEGMENT = 103
SO_TIMESTAMPNS = 35
CALLS, SEGMENTS, SEGMENT_BYTES = 97, 10, 100


@pytest.mark.parametrize("name", ["veth-4", "veth-6", "lo-4"])
@pytest.mark.parametrize("filtered", [False, True])
def test_each_is_counted_with_the_time_of_its_packet(lab: Lab, name: str, filtered: bool) -> None:  # noqa: FBT001
    path = way(lab, name)
    waited_ns = 0
    with udp_pair(path) as (sender, receiver), tcp_pair(path) as other:
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SEGMENT_BYTES)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with run(lab, ports=[receiver.getsockname()[1]] if filtered else []) as rx:
            for _ in range(CALLS):
                ping(*other, 3)  # its packets leave their addresses behind
                sender.send(bytes(SEGMENTS * SEGMENT_BYTES))
                for _ in range(SEGMENTS):
                    data, ((_, _, stamp),), _, _ = receiver.recvmsg(200, 64)
                    waited_ns += time.time_ns() - sum(
                        part * scale for part, scale in zip(struct.unpack("qq", stamp), (10**9, 1), strict=True)
                    )
                    assert len(data) == SEGMENT_BYTES
            snapshot = rx.interval()
    assert_each(snapshot, UDP_DATA_HOPS[1:], CALLS * SEGMENTS)
    assert histogram(snapshot, "rx.udp").count in {CALLS, CALLS * SEGMENTS}  # before it is cut, or behind
    total = histogram(snapshot, "rx.udp_total")
    # The kernel's stamp is taken between the driver and the core, and this thread looks at the clock after its read.
    assert total.sum_ns == pytest.approx(waited_ns, rel=0.3)
    assert {key: count for key, count in all_discarded(snapshot).items() if key[0].startswith("rx.udp")} == {}


def test_a_list_of_datagrams_is_no_packet_that_was_cut() -> None:
    # Cut before the device, they come in one poll, and the core takes all of them before IP has the first.
    with Lab(offloads=NAPI) as lab, udp_pair(way(lab, "veth-4")) as (sender, receiver):
        lab.client.run(["ethtool", "-K", "client0", "tx-udp-segmentation", "off"], check=True)
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SEGMENT_BYTES)
        with run(lab) as rx:
            for _ in range(CALLS):
                sender.send(bytes(SEGMENTS * SEGMENT_BYTES))
                for _ in range(SEGMENTS):
                    assert len(receiver.recv(200)) == SEGMENT_BYTES
            snapshot = rx.interval()
    assert snapshot.packets
    assert (snapshot.packets.entered, snapshot.packets.read) == (CALLS * SEGMENTS, CALLS * SEGMENTS)
    assert_each(snapshot, UDP_DATA_HOPS, CALLS * SEGMENTS)
