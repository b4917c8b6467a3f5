# SPDX-License-Identifier: Apache-2.0
"""Filters of ``record``: all of what is wanted and nothing else, with other traffic beside it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.measure import NetworkPath, limit, ping, tcp_pair, udp_pair, way
from tests.shared import first
from tests.verbs.record.measure import FLOW, Rows, anyone, namespaces, recording
from tests.verbs.tx.measure import vxlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root

SENDING = ("tx.queue", "tx.start")
ARRIVING = ("rx.driver", "rx.core", "rx.l4")
UDP_SOCKETS = ("tx.sent", "rx.ready", "rx.received")
TCP_SOCKETS = ("tx.send", "tx.sent", "rx.ready", "rx.read", "rx.received", "rx.copy")
PAIRS = {"udp": udp_pair, "tcp": tcp_pair}


def client_lo(lab: Lab) -> NetworkPath:
    return NetworkPath(lab.client, lab.client, "127.0.0.1", "lo")


def ends(sock: socket.socket) -> set[tuple[Any, ...]]:
    """Return the flows of a connected socket in both directions."""
    here, there = sock.getsockname()[:2], sock.getpeername()[:2]
    protocol = socket.IPPROTO_TCP if sock.type == socket.SOCK_STREAM else socket.IPPROTO_UDP
    return {(*here, *there, protocol), (*there, *here, protocol)}


def unconnected(host: str, port: int, protocol: int = socket.IPPROTO_UDP) -> tuple[Any, ...]:
    return (*anyone(host), host, port, protocol)


def assert_nothing_else(seen: Seen, wanted: set[tuple[Any, ...]]) -> None:
    """Every row is of one of these flows, and nothing else of the machine is told of."""
    flows = seen.rows("flows")
    told = dict(zip(zip(*(flows[name] for name in FLOW), strict=True), flows["flow"], strict=True))
    assert set(told) <= wanted
    numbers = set(told.values())
    packets, sockets = seen.rows("packets"), seen.rows("sockets")
    after = packets.where(packets["point"] == seen.number("tx.driver"))
    assert set(after["skb"]) <= set(seen.at("tx.start")["skb"])
    assert set(packets.where(packets["point"] != seen.number("tx.driver"))["flow"]) <= numbers
    assert set(sockets.where(sockets["point"] != seen.number("call.enter"))["flow"]) <= numbers
    tids = {int(tid) for table in ("packets", "sockets", "cpu") for tid in seen.rows(table)["tid"]}
    assert set(seen.rows("threads")["tid"]) <= tids


def counted(seen: Seen, points: tuple[str, ...]) -> dict[str, int]:
    counts = seen.counts()
    return {point: counts[point] for point in points}


def assert_each(seen: Seen, points: tuple[str, ...], expected: int) -> None:
    assert counted(seen, points) == dict.fromkeys(points, expected)


def data(seen: Seen, point: str) -> Rows:
    """Return the packets that carry something."""
    rows = seen.at(point)
    return rows.where(rows["len_bytes"] >= 100 + rows["header_bytes"])


@contextlib.contextmanager
def both(protocol: str, wanted: NetworkPath, other: NetworkPath) -> Iterator[tuple[Any, Any]]:
    with PAIRS[protocol](wanted) as flow, PAIRS[protocol](other) as other_flow:
        yield flow, other_flow


def exchange(flow: Any, other: Any) -> None:  # noqa: ANN401 - pairs of sockets
    """23 messages that are wanted, and 69 that are not."""
    for _ in range(23):
        assert ping(*other, 3) + ping(*flow, 1) == 4


FILTERS: dict[str, Any] = {
    "most": {
        "pcap": "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420 or udp",
        "ports": range(1, 17),
        "addresses": [ipaddress.ip_network("10.77.0.0/24")] * 16,
        "namespaces": range(1, 17),
        "interfaces": [(7, number) for number in range(16)],
        "pids": range(1, 17),
        "comms": ["seven"] * 16,
        "cgroups": range(1, 17),
    },
    "port": {"ports": [7]},
    "address": {"addresses": [ipaddress.ip_network("10.77.0.0/24")]},
    "netns": {"namespaces": [7]},
    "interface": {"interfaces": [(7, 7)]},
    "pid": {"pids": [7]},
    "comm": {"comms": ["seven"]},
    "cgroup": {"cgroups": [7]},
    "pcap": {"pcap": "tcp port 80 and host 10.0.0.1"},
}


@pytest.fixture(scope="module")
def unfiltered() -> set[tuple[str, str, str]]:
    with recording(None, profiles=["all"]) as seen:
        return {(row.point, row.way, row.status) for row in seen.recorder.plan()}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_takes_no_probe_point_away(unfiltered: set[tuple[str, str, str]], name: str) -> None:
    with recording(None, profiles=["all"], **FILTERS[name]) as seen:
        assert {(row.point, row.way, row.status) for row in seen.recorder.plan()} == unfiltered


@pytest.mark.parametrize("protocol", PAIRS)
@pytest.mark.parametrize("name", ["veth-4", "lo-6"])
def test_port(kept_lab: Lab, protocol: str, name: str) -> None:
    path = way(kept_lab, name)
    with both(protocol, path, path) as (flow, other):
        sender, receiver = flow
        port = receiver.getsockname()[1]
        with recording(None, ports=[port]) as seen:
            exchange(flow, other)
            seen.take()
        assert_nothing_else(seen, ends(sender) | {unconnected(path.host, port)})
    assert_each(seen, TCP_SOCKETS if protocol == "tcp" else UDP_SOCKETS, 23)
    for point in (*SENDING, *ARRIVING):
        assert len(data(seen, point)) == 23, point
    assert len(seen.at("tx.driver")) == len(seen.at("tx.start"))


@pytest.mark.parametrize("name", ["veth-4", "veth-6"])
def test_fragments_go_with_the_first_one(kept_lab: Lab, name: str) -> None:
    """Only the first one has ports: the others are known by the number that they have in common."""
    path = way(kept_lab, name)
    with both("udp", path, path) as (flow, other), recording(None, ports=[flow[1].getsockname()[1]]) as seen:
        for _ in range(23):
            for sender, receiver in (other, flow, other):
                sender.send(bytes(4001))
                assert len(receiver.recv(5000)) == 4001
        seen.take()
    for point in (*SENDING, "rx.driver", "rx.core"):
        assert len(seen.at(point)) == 3 * 23, point
    assert len(seen.at("rx.l4")) == len(seen.at("rx.received")) == 23


@pytest.mark.parametrize("protocol", PAIRS)
def test_address(kept_lab: Lab, protocol: str) -> None:
    # No other laboratory on this machine has this one.
    path = NetworkPath(kept_lab.server, kept_lab.server, "127.23.69.7", "lo")
    with both(protocol, path, way(kept_lab, "lo-4")) as (flow, other):
        with recording(None, addresses=[ipaddress.ip_network("127.23.0.0/16")]) as seen:
            exchange(flow, other)
            seen.take()
        assert_nothing_else(seen, ends(flow[0]) | {unconnected(path.host, flow[1].getsockname()[1])})
    assert_each(seen, TCP_SOCKETS if protocol == "tcp" else UDP_SOCKETS, 23)
    assert len(seen.at("tx.driver")) == len(seen.at("tx.start"))


@pytest.mark.parametrize("protocol", PAIRS)
def test_namespace(kept_lab: Lab, protocol: str) -> None:
    path = client_lo(kept_lab)
    with both(protocol, path, way(kept_lab, "lo-4")) as (flow, other):
        with recording(None, profiles=["messages"], points=["call.enter"], namespaces=[kept_lab.client.inode]) as seen:
            exchange(flow, other)
            seen.take()
        assert_nothing_else(seen, ends(flow[0]) | {unconnected(path.host, flow[1].getsockname()[1])})
    assert_each(seen, TCP_SOCKETS if protocol == "tcp" else UDP_SOCKETS, 23)
    assert len(seen.at("tx.driver")) == len(seen.at("tx.start")) >= 23
    assert set(seen.rows("packets")["netns"]) <= {0, kept_lab.client.inode}
    # Whose calls these are is known from their first event on.
    assert set(seen.at("call.enter")["tid"]) == set(seen.at("tx.sent")["tid"])


@pytest.mark.parametrize("protocol", PAIRS)
@pytest.mark.parametrize("end", first(["client0", "server0"]))
def test_interface(kept_lab: Lab, protocol: str, end: str) -> None:
    path = way(kept_lab, "veth-4")
    namespace = kept_lab.client if end == "client0" else kept_lab.server
    interfaces = [(namespace.call(socket.if_nametoindex, end), namespace.inode)]
    with both(protocol, path, way(kept_lab, "lo-4")) as (flow, other):
        with recording(None, interfaces=interfaces) as seen:
            exchange(flow, other)
            seen.take()
        assert_nothing_else(seen, ends(flow[0]) | {unconnected(path.host, flow[1].getsockname()[1])})
    points = SENDING if end == "client0" else ARRIVING
    for point in (*SENDING, *ARRIVING):
        assert len(data(seen, point)) == (23 if point in points else 0), point
    assert len(seen.at("tx.driver")) == len(seen.at("tx.start"))
    assert seen.devices(seen.at(points[0])) == {(end, namespace.inode)}
    # In sockets there is no device: these are told by the flow, once it has been seen at the device.
    if protocol == "tcp":
        assert_each(seen, ("tx.sent", "rx.ready", "rx.read", "rx.received", "rx.copy"), 23)
    elif end == "server0":
        assert_each(seen, ("rx.ready", "rx.received"), 23)


def test_what_is_freed_is_known_by_its_flow(kept_lab: Lab) -> None:
    path, other = way(kept_lab, "veth-4"), way(kept_lab, "lo-4")
    interfaces = [(kept_lab.server.call(socket.if_nametoindex, "server0"), kept_lab.server.inode)]
    with (
        kept_lab.server.call(socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as tap,
        both("udp", path, other) as (flow, other_flow),
        recording(None, interfaces=interfaces) as seen,
    ):
        limit(tap)
        exchange(flow, other_flow)
        # What it reads are clones, which end with the reading.
        for _ in range(23 + 69):
            tap.recv(1)
        flow_number = seen.take().flow_of(flow[0])
    freed = seen.at("skb.free")
    assert (len(freed), set(freed["flow"]), set(freed["netns"])) == (23, {flow_number}, {0})


@pytest.mark.parametrize(
    "options", [{"pids": [1]}, {"pids": [os.getpid()]}, {"namespaces": [1]}, {"interfaces": [(1, 1)]}]
)
def test_what_is_no_ip_belongs_to_no_flow(kept_lab: Lab, options: Any) -> None:  # noqa: ANN401 - keywords
    local_experimental = 0x88B5
    frame = b"\xff" * 6 + b"\2\0\0\0\0\1" + local_experimental.to_bytes(2, "big") + bytes(100)
    with (
        kept_lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
        kept_lab.server.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as receiver,
    ):
        limit(receiver)
        kept_lab.client.call(sender.bind, ("client0", 0))
        kept_lab.server.call(receiver.bind, ("server0", 3))
        with recording(None, **options) as seen:
            for _ in range(23):
                sender.send(frame)
                assert receiver.recv(2000) == frame
            seen.take()
    assert seen.counts() == {}


def test_stacked_devices_under_a_filter(lab: Lab) -> None:
    with vxlan(lab) as path, udp_pair(path) as flow, recording(lab) as seen:
        ping(*flow, 1)  # the neighbour is found
        seen.forget()
        assert ping(*flow, 23) == 23
        seen.take()
    for point in (*SENDING, "tx.driver"):
        rows = seen.at(point)
        assert len(rows) == 46, point
        assert {name for name, _ in seen.devices(rows)} == {"vxlan7", "client0"}, point


def test_two_filters_must_both_hold(kept_lab: Lab) -> None:
    path = way(kept_lab, "veth-4")
    with udp_pair(path) as flow, udp_pair(way(kept_lab, "lo-4")) as lo, udp_pair(path) as third:
        ports = [pair[1].getsockname()[1] for pair in (flow, lo)]
        with recording(None, ports=ports, addresses=[ipaddress.ip_network("10.77.0.0/24")]) as seen:
            exchange(flow, lo)
            assert ping(*third, 7) == 7
            seen.take()
        assert_nothing_else(seen, ends(flow[0]) | {unconnected(path.host, ports[0])})
    assert_each(seen, (*SENDING, *ARRIVING, *UDP_SOCKETS, "tx.driver"), 23)
    assert set(namespaces(kept_lab)) == set(seen.at("tx.queue")["netns"]) | set(seen.at("rx.core")["netns"])
