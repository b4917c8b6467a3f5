# SPDX-License-Identifier: Apache-2.0
"""``record --sample``: a flow is followed at every point, in both directions, or not at all."""

from __future__ import annotations

import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import NetworkPath, tcp_pair, udp_pair
from tests.verbs.record.measure import recording

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

FLOWS, SAMPLE = 211, 7
# Of 211 flows, 30 are expected; outside of these bounds are fewer than one in ten million.
_LEAST, _MOST = 6, 65


def test_sampled_connections_are_whole(lab: Lab, either: NetworkPath) -> None:
    with recording(lab, sample=SAMPLE) as seen:
        for _ in range(FLOWS):
            with tcp_pair(either) as (client, server):
                client.sendall(b"x" * 10)
                assert server.recv(10) == b"x" * 10
        seen.take()
    sent = seen.at("tx.sent")
    assert _LEAST <= len(sent) <= _MOST
    packets = seen.rows("packets")
    by_flow = {name: Counter(seen.at(name)["flow"].tolist()) for name in ("tx.queue", "rx.driver", "rx.l4")}
    followed = set(sent["flow"].tolist())
    # Each followed flow has its segments at each point; the other direction is as whole.
    assert followed <= set(by_flow["tx.queue"])
    assert len(by_flow["tx.queue"]) == 2 * len(followed)
    assert by_flow["tx.queue"] == by_flow["rx.driver"]
    assert set(seen.at("rx.received")["flow"].tolist()) == followed
    starts = Counter(packets.having(point=seen.number("tx.start"))["flow"].tolist())
    assert starts == by_flow["tx.queue"]


def test_sampled_datagrams_are_read_by_their_socket(lab: Lab, either: NetworkPath) -> None:
    with recording(lab, sample=SAMPLE) as seen, udp_pair(either) as (_, receiver):
        address = receiver.getsockname()[:2]
        for _ in range(FLOWS):
            with either.sender.call(socket.socket, either.family, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"x", address)
                receiver.recv(10)
        seen.take()
    sampled = len(seen.at("tx.queue"))
    assert _LEAST <= sampled <= _MOST
    assert len(seen.at("rx.driver")) == len(seen.at("rx.l4")) == sampled
    assert set(seen.at("rx.l4")["flow"].tolist()) == set(seen.at("tx.queue")["flow"].tolist())
    # The receiver has no flow of its own: from its first sampled datagram on, its calls are all seen.
    assert len(seen.at("rx.received")) >= sampled - 1
