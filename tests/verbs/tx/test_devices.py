# SPDX-License-Identifier: Apache-2.0
"""Datagrams through devices upon devices, and when they are freed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import MS, TIMEOUT_S, NetworkPath, all_discarded, counts, histogram, ping, udp_pair, way
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, devices, ip, messages, run_udp, total_when, vxlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab, Namespace

pytestmark = pytest.mark.root

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000


def test_vlan_over_veth_shows_both_devices(lab: Lab) -> None:
    for namespace, device, host in ((lab.client, "client0", 1), (lab.server, "server0", 2)):
        ip(namespace, f"link add link {device} name vlan7 type vlan id 7", f"addr add 10.78.0.{host}/24 dev vlan7")
        ip(namespace, "link set vlan7 up")
    with udp_pair(NetworkPath(lab.client, lab.server, "10.78.0.2", "vlan7")) as flow, run_udp(lab, events=True) as tx:
        ping(*flow, 1)  # the neighbour is found
        tx.interval(), messages(tx)
        assert ping(*flow, 23) == 23
        snapshot, single = tx.interval(), messages(tx)
        assert counts(tx.total())["tx.udp_total"] == 24
    assert_seen(snapshot, UDP_HOPS, 23)
    assert devices(single) == {("vlan7", "client0")}


def test_vxlan_over_veth_is_one_message_with_both_devices(lab: Lab) -> None:
    with vxlan(lab) as path, udp_pair(path) as flow, run_udp(lab, events=True) as tx:
        assert ping(*flow, 23) == 23
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 23)
    assert devices(single) == {("vxlan7", "client0")}
    assert {message.len_bytes for message in single} == {100}


def test_memory_that_a_device_replaces_makes_no_second_message(lab: Lab) -> None:
    with vxlan(lab) as path, udp_pair(path) as flow, contextlib.ExitStack() as stack:
        # A tap that does not read holds a clone of each packet: the tunnel must not write into what they share.
        tap = stack.enter_context(lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
        lab.client.call(tap.bind, ("vxlan7", 3))
        tx = stack.enter_context(run_udp(lab, events=True))
        assert ping(*flow, 23) == 23
        snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 23)
    assert devices(single) == {("vxlan7", "client0")}


def test_a_packet_that_a_bridge_floods_is_one_message(lab: Lab) -> None:
    ip(
        lab.client,
        "link add bridge0 type bridge",
        "link add port1 type veth peer name end1",
        "link add port2 type veth peer name end2",
        *(f"link set {name} master bridge0" for name in ("port1", "port2")),
        *(f"link set {name} up" for name in ("end1", "end2", "port1", "port2", "bridge0")),
        "addr add 10.79.0.1/24 dev bridge0",
        "neigh replace 10.79.0.2 lladdr 02:00:00:79:00:02 dev bridge0",
    )
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("10.79.0.2", 9))
        with run_udp(lab, events=True) as tx:
            for _ in range(23):
                sender.send(bytes(100))
            snapshot, single = tx.interval(), messages(tx)
    assert_seen(snapshot, UDP_HOPS, 23)
    assert len(single) == 23
    assert {names[0] for names in devices(single)} == {"bridge0"}


def test_a_device_that_frees_in_its_own_function_is_done(lab: Lab) -> None:
    ip(
        lab.client,
        "link add dummy0 type dummy",
        "link set dummy0 up",
        "addr add 10.79.0.1/24 dev dummy0",
        "neigh replace 10.79.0.2 lladdr 02:00:00:79:00:02 dev dummy0",
    )
    with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("10.79.0.2", 9))
        with run_udp(lab) as tx:
            for _ in range(23):
                sender.send(bytes(100))
            snapshot = tx.interval()
    assert_seen(snapshot, (*UDP_HOPS, "tx.udp_free"), 23)


@contextlib.contextmanager
def tun(namespace: Namespace) -> Iterator[int]:
    """Yield a TUN device's file: what is sent to 10.79.0.0/24 waits in it until it is read."""

    def opened() -> int:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"tun7", IFF_TUN | IFF_NO_PI))
        return fd

    fd = namespace.call(opened)
    try:
        namespace.sysctl("net.ipv6.conf.tun7.disable_ipv6", 1)  # or the kernel asks for routers, seconds later as well
        ip(namespace, "link set tun7 up", "addr add 10.79.0.1/24 dev tun7")
        yield fd
    finally:
        os.close(fd)


def test_the_free_hop_is_how_long_the_device_keeps_it(lab: Lab) -> None:
    with tun(lab.client) as fd, lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("10.79.0.2", 9))
        with run_udp(lab) as tx:
            began_ns = time.monotonic_ns()
            for _ in range(7):
                sender.send(bytes(100))
            assert counts(tx.interval())["tx.udp_driver"] == 7
            time.sleep(0.2)
            for _ in range(7):
                assert len(os.read(fd, 2000)) == 128
            longest_ns = time.monotonic_ns() - began_ns
            snapshot = tx.interval()
    assert counts(snapshot)["tx.udp_free"] == 7
    hop = histogram(snapshot, "tx.udp_free")
    assert 7 * 200 * MS <= hop.sum_ns <= 7 * longest_ns
    assert all_discarded(snapshot) == {}


def test_a_tap_that_does_not_read_does_not_hold_the_packet(lab: Lab) -> None:
    with tun(lab.client) as fd, contextlib.ExitStack() as stack:
        tap = stack.enter_context(lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
        lab.client.call(tap.bind, ("tun7", 3))
        sender = stack.enter_context(lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM))
        sender.settimeout(TIMEOUT_S)
        sender.connect(("10.79.0.2", 9))
        with run_udp(lab, ports=[9]) as tx:
            for _ in range(7):
                sender.send(bytes(100))
            read = 0
            while read < 7:
                read += len(os.read(fd, 2000)) == 128
            snapshot = tx.interval()
    assert_seen(snapshot, (*UDP_HOPS, "tx.udp_free"), 7)


def test_a_datagram_that_waited_for_its_neighbour_has_no_other_call_s_time(lab: Lab) -> None:
    """It leaves when the answer comes, in whatever context that is: no time is better than a wrong one."""
    for namespace, device in ((lab.client, "client0"), (lab.server, "server0")):
        ip(namespace, f"link set {device} arp on", "neigh flush all nud permanent")
    with udp_pair(way(lab, "veth-4")) as (sender, receiver), run_udp(lab) as tx:
        sender.send(b"asks")
        assert receiver.recv(9) == b"asks"
        first = total_when(tx, "tx.udp_driver", 1)
        assert ping(sender, receiver, 23) == 23
        snapshot = tx.interval()
    assert counts(first)["tx.udp"] + all_discarded(first).get(("tx.udp", "no_send"), 0) == 1
    assert_seen(snapshot, UDP_HOPS, 23)
