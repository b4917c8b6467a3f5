# SPDX-License-Identifier: Apache-2.0
"""``record --pcap``: the packets that the expression wants, what their sockets do, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.shared import first
from tests.verbs.record.measure import recording
from tests.verbs.record.test_filters import assert_each, assert_nothing_else, data, ends, unconnected

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

MESSAGES = 23


@pytest.mark.parametrize("name", first(["veth-4", "lo-6", "veth-6"], 2))
def test_datagrams_of_one_port_are_seen_at_every_hop(lab: Lab, name: str) -> None:
    path = way(lab, name)
    with udp_pair(path) as (sender, receiver), udp_pair(path) as (other, other_receiver), tcp_pair(path) as connection:
        port = receiver.getsockname()[1]
        with recording(lab, pcap=f"udp dst port {port}") as seen:
            ping(sender, receiver, MESSAGES)
            ping(other, other_receiver, MESSAGES)
            ping(*connection, MESSAGES)
            seen.take()
        wanted = {*ends(sender), unconnected(path.host, port), (path.host, port, *unconnected(path.host, port)[:2], 17)}
    assert_each(seen, ("tx.queue", "rx.driver", "rx.core", "rx.l4", "rx.ready", "rx.received"), MESSAGES)
    assert_nothing_else(seen, wanted)


def test_segments_with_data_alone(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with tcp_pair(path) as (sender, receiver), udp_pair(path) as others:
        expression = "tcp and ((ip[2:2] - ((ip[0] & 0xf) << 2)) - ((tcp[12] & 0xf0) >> 2)) = 100"
        with recording(lab, pcap=f"{expression} and src host {sender.getsockname()[0]}") as seen:
            ping(sender, receiver, MESSAGES)
            ping(*others, MESSAGES)
            seen.take()
        wanted = ends(sender)
    assert len(data(seen, "rx.core")["seq"]) == len(seen.at("rx.core")["seq"]) == MESSAGES
    assert len(seen.at("rx.received")["flow"]) == MESSAGES
    assert_nothing_else(seen, wanted)


def test_what_no_packet_matches_leaves_nothing(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with (
        udp_pair(path) as (sender, receiver),
        recording(lab, pcap="tcp and udp or icmp6 and ip proto 1 or sctp") as seen,
    ):
        ping(sender, receiver, MESSAGES)
        seen.take()
    assert len(seen.rows("packets")["time_ns"]) == len(seen.rows("sockets")["time_ns"]) == 0
