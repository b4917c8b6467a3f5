# SPDX-License-Identifier: Apache-2.0
"""Several runs at once, sudden ends, sockets and namespaces that come and go, taps and copies."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Namespace
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import (
    TCP_DATA_HOPS,
    UDP_DATA_HOPS,
    NetworkPath,
    Tcpdump,
    assert_each,
    assert_killed_leaves_nothing,
    counts,
    discarded,
    ping,
    run,
    tcp_pair,
    udp_pair,
    wait_acknowledged,
    way,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.root

HOLDER = """
import time
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
with RxCollector(RxOptions()):
    print("attached", flush=True)
    time.sleep(60)
"""


def test_two_collectors_at_once_both_see_everything(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run(lab) as first, run(lab, protocol="udp") as second:
        assert ping(*udp, 200) + ping(*tcp, 23) == 223
        assert_each(first.interval(), UDP_DATA_HOPS, 200)
        assert_each(first.total(), TCP_DATA_HOPS, 23)
        assert_each(second.interval(), UDP_DATA_HOPS, 200)


def test_a_killed_run_leaves_nothing_attached() -> None:
    assert_killed_leaves_nothing(HOLDER)


def test_a_namespace_that_is_made_during_the_run_is_seen() -> None:
    with RxCollector(RxOptions(group_by="netns")) as rx, Namespace() as namespace:
        rx.interval()
        loopback = NetworkPath(namespace, namespace, "127.0.0.1", "lo")
        with udp_pair(loopback) as flow:
            assert ping(*flow, 23) == 23
        rows = [row for row in rx.interval().hops if row.group["netns"].startswith(f"{namespace.pid} ")]
    found = {row.hop: row.histogram.count for row in rows}
    assert {hop: found.get(hop) for hop in ("rx.core", "rx.ip", *UDP_DATA_HOPS)} == dict.fromkeys(
        ("rx.core", "rx.ip", *UDP_DATA_HOPS), 23
    )


def test_many_connections_keep_their_bytes_apart(lab: Lab, veth: NetworkPath) -> None:
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(tcp_pair(veth)) for _ in range(300)]
        rx = stack.enter_context(run(lab))
        for sender, _ in flows:
            sender.send(b"first")
            sender.send(b"second")
        for _, receiver in reversed(flows):
            assert receiver.recv(100) == b"firstsecond"
        assert_each(rx.interval(), TCP_DATA_HOPS, 600)


@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
def test_what_nobody_reads_is_queued_and_not_read(lab: Lab, veth: NetworkPath, pair: Callable[..., object]) -> None:
    protocol = "udp" if pair is udp_pair else "tcp"
    with run(lab) as rx:
        with pair(veth) as (sender, receiver):  # type: ignore[attr-defined]
            for _ in range(23):
                sender.send(bytes(100))
            receiver.recv(100)
            eventually(lambda: rx.interval() is not None and counts(rx.total())[f"rx.{protocol}_queue"] == 23)
        with pair(veth) as flow:  # type: ignore[attr-defined]
            assert ping(*flow, 23) == 23
        rx.interval()
        found = counts(rx.total())
    assert found[f"rx.{protocol}_queue"] == 46
    assert found[f"rx.{protocol}_read"] == found[f"rx.{protocol}_total"] == 24


@pytest.mark.parametrize("pair", [udp_pair, tcp_pair], ids=["udp", "tcp"])
def test_a_socket_from_before_the_start_is_exact_from_then_on(
    lab: Lab, veth: NetworkPath, pair: Callable[..., object]
) -> None:
    protocol = "udp" if pair is udp_pair else "tcp"
    with pair(veth) as (sender, receiver):  # type: ignore[attr-defined]
        for _ in range(7):
            sender.send(bytes(100))
        with run(lab) as rx:
            for _ in range(23):
                sender.send(bytes(100))
                if protocol == "tcp":
                    wait_acknowledged(sender)  # or TCP may put several into one segment
            left = 30 * 100
            while left:
                left -= len(receiver.recv(100))
            found = counts(rx.interval())
    assert found[f"rx.{protocol}_queue"] == 23
    assert found[f"rx.{protocol}_read"] == found[f"rx.{protocol}_total"] == 23


def test_a_tap_takes_nothing_away(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run(lab) as rx, Tcpdump(either, "ip or ip6"):
        assert ping(*udp, 1009) + ping(*tcp, 200) == 1209
        assert_each(rx.interval(), UDP_DATA_HOPS, 1009)
        assert_each(rx.total(), TCP_DATA_HOPS, 200)


def test_each_receiver_of_a_multicast_counts(lab: Lab) -> None:
    group = "239.77.0.1"
    with contextlib.ExitStack() as stack:
        receivers = [
            stack.enter_context(lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
        ]
        for receiver in receivers:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            receiver.bind((group, 7777))
            membership = socket.inet_aton(group) + socket.inet_aton("10.77.0.2")
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        sender = stack.enter_context(lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.77.0.1"))
        rx = stack.enter_context(run(lab, ports=[7777]))
        for _ in range(23):
            sender.sendto(b"to all", (group, 7777))
            assert [receiver.recv(100) for receiver in receivers] == [b"to all"] * 2
        snapshot = rx.interval()
    found = counts(snapshot)
    assert found["rx.core"] == found["rx.ip"] == 23
    assert found["rx.udp_read"] == found["rx.udp_total"] == 46
    # The copy for the second socket passes the hooks before it a second time, which is said.
    assert discarded(snapshot)[("rx.udp", "again")] == 23


def test_a_bridge_passes_a_packet_up_once(lab: Lab) -> None:
    for words in (
        "link add bridge0 type bridge",
        "link set bridge0 address 02:00:00:77:00:02",
        "link set server0 master bridge0",
        "link set bridge0 up",
        "addr flush dev server0",
        "addr add 10.77.0.2/24 dev bridge0",
    ):
        lab.server.run(["ip", *words.split()], check=True)
    lab.server.run(
        ["ip", "neigh", "replace", "10.77.0.1", "lladdr", mac(lab.client, "client0"), "dev", "bridge0"], check=True
    )
    lab.client.run(["ip", "neigh", "replace", "10.77.0.2", "lladdr", "02:00:00:77:00:02", "dev", "client0"], check=True)
    with udp_pair(way(lab, "veth-4")) as flow, run(lab, addresses=[]) as rx:
        ping(*flow, 1)
        rx.interval()
        assert ping(*flow, 23) == 23
        snapshot = rx.interval()
    assert_each(snapshot, UDP_DATA_HOPS, 23)
    assert counts(snapshot)["rx.ip"] == counts(snapshot)["rx.core"] == 23


def mac(namespace: Namespace, ifname: str) -> str:
    words = namespace.run(["ip", "-br", "link", "show", ifname], capture_output=True, text=True, check=True).stdout
    return words.split()[2]
