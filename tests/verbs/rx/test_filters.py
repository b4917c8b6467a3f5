# SPDX-License-Identifier: Apache-2.0
"""Each filter, with one flow that matches and one that does not: all of the first, nothing of the second."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Lab, Workload
from hopscope.probes.attach import cgroup_root
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import (
    TCP_DATA_HOPS,
    UDP_DATA_HOPS,
    NetworkPath,
    assert_each,
    counts,
    discarded,
    ping,
    run,
    tcp_pair,
    udp_pair,
    way,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

BEFORE_SOCKET = ("rx.core", "rx.ip")
UDP_READER_HOPS = ("rx.udp_read", "rx.udp_total")
TCP_READER_HOPS = ("rx.tcp_read", "rx.tcp_total")


def ifindex(path: NetworkPath) -> int:
    return path.receiver.call(socket.if_nametoindex, path.ifname)


def two_udp_flows(lab: Lab, wanted: NetworkPath, other: NetworkPath, **options: Any) -> Any:  # noqa: ANN401 - a snapshot
    with udp_pair(wanted) as flow, udp_pair(other) as other_flow, run(lab, **options) as rx:
        for _ in range(23):
            assert ping(*other_flow, 3) + ping(*flow, 1) == 4
        return rx.interval()


@pytest.mark.parametrize(("wanted", "other"), [("veth-4", "lo-4"), ("lo-6", "veth-6")])
def test_interface(lab: Lab, wanted: str, other: str) -> None:
    path = way(lab, wanted)
    snapshot = two_udp_flows(lab, path, way(lab, other), interfaces=[(ifindex(path), lab.server.inode)])
    assert_each(snapshot, (*BEFORE_SOCKET, *UDP_DATA_HOPS), 23)


def test_the_same_index_in_another_namespace_is_another_interface(lab: Lab) -> None:
    client_lo = NetworkPath(lab.client, lab.client, "127.0.0.1", "lo")
    snapshot = two_udp_flows(lab, way(lab, "lo-4"), client_lo, interfaces=[(1, lab.server.inode)])
    assert_each(snapshot, (*BEFORE_SOCKET, *UDP_DATA_HOPS), 23)


def test_namespace(lab: Lab) -> None:
    client_lo = NetworkPath(lab.client, lab.client, "127.0.0.1", "lo")
    options = RxOptions(namespaces=[lab.client.inode])
    with udp_pair(client_lo) as flow, udp_pair(way(lab, "veth-4")) as other_flow, RxCollector(options) as rx:
        assert ping(*flow, 23) + ping(*other_flow, 69) == 92
        snapshot = rx.interval()
    assert_each(snapshot, (*BEFORE_SOCKET, *UDP_DATA_HOPS), 23)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_protocol(lab: Lab, either: NetworkPath, protocol: str) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run(lab, protocol=protocol) as rx:
        assert ping(*udp, 23) + ping(*tcp, 7) == 30
        snapshot = rx.interval()
    hops = UDP_DATA_HOPS if protocol == "udp" else ("rx.tcp", *TCP_DATA_HOPS)
    # Before the socket, too: what is known later is recorded later.
    assert_each(snapshot, (*BEFORE_SOCKET, *hops), 23 if protocol == "udp" else 7)
    assert not [row.hop for row in snapshot.hops if row.hop.startswith("rx.tcp" if protocol == "udp" else "rx.udp")]


@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
@pytest.mark.parametrize("end", ["source", "destination"])
def test_port(lab: Lab, path: NetworkPath, pair: Any, end: str) -> None:  # noqa: ANN401 - a context manager
    with pair(path) as flow, pair(path) as other_flow:
        sender, receiver = flow
        port = (sender if end == "source" else receiver).getsockname()[1]
        with run(lab, ports=[port]) as rx:
            assert ping(*other_flow, 69) + ping(*flow, 23) == 92
            snapshot = rx.interval()
    hops = UDP_DATA_HOPS if pair is udp_pair else ("rx.tcp", *TCP_DATA_HOPS)
    assert_each(snapshot, (*BEFORE_SOCKET, *hops), 23)


@pytest.mark.parametrize(
    ("wanted", "other", "prefix"),
    [
        ("veth-4", "lo-4", "10.77.0.0/24"),
        ("veth-4", "lo-4", "10.77.0.1/32"),
        ("veth-4", "veth-6", "0.0.0.0/0"),
        ("veth-6", "lo-6", "fd77::/64"),
        ("lo-6", "veth-6", "::1/128"),
        ("lo-4", "veth-4", "126.0.0.0/7"),
    ],
)
@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
def test_address(lab: Lab, wanted: str, other: str, prefix: str, pair: Any) -> None:  # noqa: ANN401 - as above
    addresses = [ipaddress.ip_network(prefix)]
    with pair(way(lab, wanted)) as flow, pair(way(lab, other)) as other_flow, run(lab, addresses=addresses) as rx:
        assert ping(*other_flow, 69) + ping(*flow, 23) == 92
        snapshot = rx.interval()
    assert_each(snapshot, (*BEFORE_SOCKET, *(UDP_DATA_HOPS if pair is udp_pair else TCP_DATA_HOPS)), 23)


def test_an_ipv4_address_holds_on_an_ipv6_socket(lab: Lab, veth: NetworkPath) -> None:
    with (
        lab.server.call(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM) as receiver,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("::", 0))
        sender.connect((veth.host, receiver.getsockname()[1]))
        with run(lab, addresses=[ipaddress.ip_network("10.77.0.1/32")]) as rx:
            assert ping(sender, receiver, 23) == 23
            assert_each(rx.interval(), (*BEFORE_SOCKET, *UDP_DATA_HOPS), 23)


@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
def test_minimum_queue_counts_from_so_many_in_the_queue(lab: Lab, veth: NetworkPath, pair: Any) -> None:  # noqa: ANN401
    with pair(veth) as (sender, receiver), run(lab, min_queue=4) as rx:
        # One by one there is never another in the queue.
        assert ping(sender, receiver, 23) == 23
        assert counts(rx.interval())["rx.core"] == 0
        if pair is tcp_pair:
            return  # TCP merges what waits, so that its queue is not a number of segments
        for _ in range(10):
            sender.send(bytes(100))
        for _ in range(10):
            receiver.recv(200)
        # The fourth is the first that makes the queue so long.
        assert_each(rx.interval(), (*BEFORE_SOCKET, *UDP_DATA_HOPS), 7)


@contextlib.contextmanager
def cgroups() -> Iterator[tuple[Path, Path, Path]]:
    """Yield a cgroup, one below it, and one beside it."""
    root = cgroup_root() / f"hopscope-test-{os.getpid()}"
    made = (root / "wanted", root / "wanted" / "child", root / "other")
    try:
        for each in made:
            each.mkdir(parents=True, exist_ok=True)
        yield made
    finally:
        for each in (made[1], made[0], made[2], root):
            each.rmdir()


def traffic(path: NetworkPath, protocol: str, messages: int, *options: Any) -> None:  # noqa: ANN401 - words
    size = ("--size", 100, "--count", messages)
    with Workload(path.receiver, f"{protocol}-sink", "--bind", path.host, *size[2:], *options) as sink:
        Workload(path.sender, f"{protocol}-send", path.host, sink.port, *size, "--rate", 1000).result()
        sink.result()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_cgroup_of_the_socket_and_those_below(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    with cgroups() as (wanted, child, other), run(lab, cgroups=[wanted.stat().st_ino]) as rx:
        traffic(veth, protocol, 23, "--cgroup", wanted)
        traffic(veth, protocol, 69, "--cgroup", other)
        traffic(veth, protocol, 7, "--cgroup", child)
        snapshot = rx.interval()
    hops = UDP_DATA_HOPS if protocol == "udp" else TCP_DATA_HOPS
    # The socket is known to belong there before anybody reads.
    assert_each(snapshot, (*BEFORE_SOCKET, *hops), 30)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_pid_of_the_reader(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    sinks = (f"{protocol}-sink", "--bind", veth.host)
    with (
        Workload(veth.receiver, *sinks) as wanted,
        Workload(veth.receiver, *sinks) as other,
        run(lab, pids=[wanted.pid]) as rx,
    ):
        for sink, messages in ((other, 69), (wanted, 23)):
            words = (veth.host, sink.port, "--size", 100, "--count", messages, "--rate", 1000)
            Workload(veth.sender, f"{protocol}-send", *words).result()
            sink.result() if protocol == "tcp" else sink.stop()
        snapshot = rx.interval()
    assert_each(snapshot, UDP_READER_HOPS if protocol == "udp" else TCP_READER_HOPS, 23)
    assert {row.hop for row in snapshot.hops} <= {
        f"rx.{each}_{hop}" for each in ("tcp", "udp") for hop in ("wake", "asleep", "runnable", "read", "total")
    }


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_name_of_the_reader(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    with run(lab, comms=["wanted-name"]) as rx:
        traffic(veth, protocol, 69, "--comm", "wanted-names")
        traffic(veth, protocol, 23, "--comm", "wanted-name")
        traffic(veth, protocol, 7)
        snapshot = rx.interval()
    assert_each(snapshot, UDP_READER_HOPS if protocol == "udp" else TCP_READER_HOPS, 23)


def test_two_filters_must_both_hold(lab: Lab) -> None:
    with udp_pair(way(lab, "veth-4")) as flow, tcp_pair(way(lab, "veth-4")) as tcp, udp_pair(way(lab, "lo-4")) as lo:
        ports = [flow[1].getsockname()[1], tcp[1].getsockname()[1], lo[1].getsockname()[1]]
        with run(lab, ports=ports, protocol="udp", addresses=[ipaddress.ip_network("10.0.0.0/8")]) as rx:
            assert ping(*tcp, 69) + ping(*lo, 69) + ping(*flow, 23) == 161
            assert_each(rx.interval(), (*BEFORE_SOCKET, *UDP_DATA_HOPS), 23)


def test_values_of_one_filter_are_alternatives(lab: Lab, veth: NetworkPath) -> None:
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(udp_pair(veth)) for _ in range(17)]
        rx = stack.enter_context(run(lab, ports=[flow[1].getsockname()[1] for flow in flows[:16]]))
        for flow in flows:
            assert ping(*flow, 3) == 3
        assert_each(rx.interval(), UDP_DATA_HOPS, 48)


def test_hops_that_are_asked_for_are_all_that_is_shown(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run(lab, hops=["rx.udp_read"]) as rx:
        assert ping(*flow, 23) == 23
        snapshot = rx.interval()
    assert counts(snapshot) == {"rx.udp_read": 23}
    assert discarded(snapshot) == {}
