# SPDX-License-Identifier: Apache-2.0
"""Datagrams that come as one packet (UDP_SEGMENT) to a socket that wants each, as QUIC between containers does."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import UDP_DATA_HOPS, all_discarded, assert_each, histogram, ping, run, tcp_pair, udp_pair, way

if TYPE_CHECKING:
    from hopscope.lab import Lab

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
