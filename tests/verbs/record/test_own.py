# SPDX-License-Identifier: Apache-2.0
"""What hopscope itself sends and receives is left out of ``record``: nothing of it, and nothing else."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import UsageError
from hopscope.live.own_flows import OwnFlow, own_flow
from hopscope.live.wire.layout import ETHERTYPE
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.verbs.record.measure import anyone, recording

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root
PAIRS: dict[str, Any] = {"udp": udp_pair, "tcp": tcp_pair}
# All that a packet or a socket passes; of `call.enter` nothing says what it is about.
POINTS = ("messages", "packets", "drops")
# A length that no other packet has.
LEN_BYTES = 1237


def flow_of(protocol: str, sock: socket.socket) -> OwnFlow:
    (here, port), (there, peer_port) = sock.getsockname()[:2], sock.getpeername()[:2]
    return OwnFlow(protocol, ip_address(here), port, ip_address(there), peer_port)


def ports(seen: Seen) -> set[int]:
    flows = seen.rows("flows")
    return {int(port) for name in ("source_port", "destination_port") for port in flows[name]}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PAIRS)
@pytest.mark.parametrize("name", ["veth-4", "veth-6", "lo-4"])
def test_nothing_of_an_own_flow_is_recorded_and_all_of_others(lab: Lab, protocol: str, name: str) -> None:
    path = way(lab, name)
    with PAIRS[protocol](path) as own, PAIRS[protocol](path) as other:
        with recording(lab, profiles=POINTS) as seen:
            assert ping(*other, 23) == 23
            alone = seen.take().counts()
        with recording(lab, [], profiles=POINTS) as seen:
            nobody, _ = anyone(path.host)
            bound = OwnFlow("udp", None, own[1].getsockname()[1], ip_address(nobody), 0)
            seen.recorder.leave_out([flow_of(protocol, own[0]), bound])
            for _ in range(23):
                assert ping(*own, 3) + ping(*other, 1) == 4
            beside = seen.take().counts()
            ours = own[0].getsockname()[1]
            assert ours not in ports(seen)
            assert other[0].getsockname()[1] in ports(seen)
    for point in ("tx.queue", "tx.start", "tx.driver", "rx.driver", "rx.core", "tx.sent", "rx.ready", "rx.received"):
        assert beside[point] == alone[point] > 0, point


def test_one_end_is_enough(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with udp_pair(path) as own, udp_pair(path) as other:
        flow = own_flow(["udp", path.host, own[0].getpeername()[1], None, own[0].getsockname()[1]])
        with recording(lab, [flow], profiles=POINTS, namespaces=[lab.client.inode]) as seen:
            assert ping(*own, 23) + ping(*other, 23) == 46
            assert seen.take().counts()["tx.queue"] == 23


def test_what_is_left_out_may_change(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with (
        udp_pair(path) as first,
        udp_pair(path) as second,
        recording(lab, [], profiles=("packets",)) as seen,
    ):
        for own, counted in (([first], 23), ([second], 1), ([first, second], 0), ([], 24), ([second, first], 0)):
            seen.recorder.leave_out([flow_of("udp", each[0]) for each in own])
            assert ping(*first, 1) + ping(*second, 23) == 24
            assert seen.take().counts()["tx.queue"] == counted
            seen.forget()


def test_more_than_the_kernel_side_takes_are_refused(lab: Lab) -> None:
    flows = [OwnFlow("tcp", ip_address("10.0.0.1"), port) for port in range(1, 129)]
    with recording(lab, [], profiles=("drops",)) as seen:
        seen.recorder.leave_out(flows)
        with pytest.raises(UsageError, match="hopscope has too many connections of its own"):
            seen.recorder.leave_out([*flows, OwnFlow("tcp", ip_address("10.0.0.1"), 129)])


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("tcp", "10.0.0.1", 22, "10.0.0.2"),
        ("icmp", "10.0.0.1", 22, "10.0.0.2", 23),
        (["tcp"], "10.0.0.1", 22, "10.0.0.2", 23),
        ("tcp", "host", 22, "10.0.0.2", 23),
        ("tcp", 167772161, 22, "10.0.0.2", 23),
        ("tcp", "10.0.0.1", 0, "10.0.0.2", 23),
        ("tcp", "10.0.0.1", 22, "10.0.0.2", 65536),
        ("tcp", "10.0.0.1", 22, "10.0.0.2", False),
        ("tcp", "10.0.0.1", True, "10.0.0.2", 23),
        ("tcp", "10.0.0.1", "22", "10.0.0.2", 23),
    ],
)
def test_what_another_host_calls_a_flow_may_be_none(fields: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="A flow to exclude is malformed"):
        own_flow(fields)


def test_nothing_of_an_own_ethertype_is_recorded_wherever_it_is(lab: Lab) -> None:
    points = ("rx.driver", "rx.core", "skb.drop")
    seen_at = []
    for own_ethertype in (0, ETHERTYPE):
        with (
            lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW) as sender,
            recording(None, profiles=("packets",), own_ethertype=own_ethertype) as seen,
        ):
            sender.bind(("client0", ETHERTYPE))
            for _ in range(23):
                sender.send(bytes(6) + bytes(6) + ETHERTYPE.to_bytes(2, "big") + bytes(LEN_BYTES))
            packets = seen.take().rows("packets")
            own = packets.having(len_bytes=(LEN_BYTES, LEN_BYTES + 14))
            seen_at.append({point for point in points if seen.number(point) in own["point"]})
            assert len(own) == 0 or not own_ethertype
    assert seen_at[0] >= {"rx.driver", "rx.core"}
