# SPDX-License-Identifier: Apache-2.0
"""Devices stacked upon each other, and packets that are cut or queued on their way through them."""

from __future__ import annotations

import socket
import time

import pytest

from hopscope.lab import Lab, Namespace, Tbf, shape
from tests.lab.measure import MS, NetworkPath, all_discarded, in_thread, ping, tcp_pair
from tests.verbs.tx.tcp_measure import WAYS, assert_accounted, assert_each, done, events, read_all, run, run_in

pytestmark = pytest.mark.root

# Upper device → how it is made upon client0 and server0, and the devices that a packet comes to.
STACKS = {
    "vlan": ("link add link {lower} name vlan7 type vlan id 7", ["vlan7", "client0"]),
    "macvlan": ("link add link {lower} name macvlan0 type macvlan mode bridge", ["macvlan0", "client0"]),
    "vxlan": ("link add vxlan0 type vxlan id 7 dstport 4789 local {local} remote {remote}", ["vxlan0", "client0"]),
    "bridge": ("link add bridge0 type bridge", ["bridge0", "client0"]),
}


def stack(lab: Lab, kind: str, address: str) -> NetworkPath:
    """Put a device upon each end; return the way through them."""
    made, devices = STACKS[kind]
    for namespace, lower, local, remote in (
        (lab.client, "client0", "10.77.0.1", "10.77.0.2"),
        (lab.server, "server0", "10.77.0.2", "10.77.0.1"),
    ):
        words = made.format(lower=lower, local=local, remote=remote).split()
        if namespace.run(["ip", *words], capture_output=True).returncode:
            pytest.skip(f"this kernel has no {kind}")
        if kind == "bridge":
            ip(namespace, f"link set {lower} master bridge0")
        ip(namespace, f"addr add {address % local[-1]} dev {devices[0]} nodad")
        ip(namespace, f"link set {devices[0]} up")
        ip(namespace, f"link set {lower} arp on promisc on")
    return NetworkPath(lab.client, lab.server, address.split("/", maxsplit=1)[0] % 2, devices[0])


def ip(namespace: Namespace, words: str) -> None:
    namespace.run(["ip", *words.split()], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STACKS)
def test_each_device_is_told_in_order(lab: Lab, kind: str, way: str) -> None:
    path = stack(lab, kind, "fd88::%s/64" if kind == "vlan" else "10.88.0.%s/24")
    with tcp_pair(path) as flow, run(lab, way) as tx:
        assert ping(*flow, 23, 1000) == 23
        assert_each(done(tx, 23), way, 23)
        messages = events(tx)
    for message in messages:
        assert [device.name for device in message.devices] == STACKS[kind][1]
        below = (message.driver_ns or 0) - (message.sched_ns or 0)
        assert 0 == message.devices[0].after_ns < message.devices[1].after_ns <= below
        assert 0 < (message.qdisc_ns or 0) <= below
        assert message.retransmits == 0


def test_the_queue_of_the_lower_device_is_the_wait(lab: Lab) -> None:
    path = stack(lab, "vxlan", "10.88.0.%s/24")
    shape(lab.client, "client0", Tbf(rate_bit_s=1_000_000, burst_bytes=1600))
    with tcp_pair(path) as (sender, receiver), run(lab) as tx:
        for _ in range(10):
            # Two packets of 1.1 kB at 1 Mbit/s: the second waits for about 4.5 to 9 ms.
            sender.send(bytes(1000))
            sender.send(bytes(1000))
            read_all(receiver, 2000)
            time.sleep(0.03)
        snapshot = done(tx, 20)
        messages = events(tx)
    assert_accounted(snapshot, "stamped", 20)
    assert {tuple(device.name for device in message.devices) for message in messages} == {("vxlan0", "client0")}
    # Where the machine stands still between the two, that is part of the wait.
    waits = [
        second.qdisc_ns + (second.sched_ns or 0) - (first.sched_ns or 0)
        for first, second in zip(messages[::2], messages[1::2], strict=True)
        if second.qdisc_ns is not None
    ]
    assert len(waits) >= 5
    assert min(waits) > 4 * MS
    assert max(second.qdisc_ns or 0 for second in messages[1::2]) > 4 * MS
    # What is no queue is code, the tunnel's and the driver's: at the median, for this machine may be busy.
    drivers = sorted(driver_ns for message in messages if (driver_ns := message.hops()["tx.driver"]) is not None)
    assert drivers[len(drivers) // 2] < MS


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tso", [False, True], ids=["cut in the host", "cut by the device"])
def test_a_packet_that_is_cut_below_tcp_keeps_its_message(way: str, tso: bool) -> None:  # noqa: FBT001 - a parameter
    with Lab(offloads={"tso": tso, "gso": tso}) as lab:
        path = NetworkPath(lab.client, lab.server, "10.77.0.2", "server0")
        with tcp_pair(path) as (sender, receiver), run(lab, way) as tx:
            for _ in range(23):
                with in_thread(lambda: read_all(receiver, 10_000)):
                    sender.send(bytes(10_000))
            assert_each(done(tx, 23), way, 23)
            messages = events(tx)
    for message in messages:
        assert 0 < (message.qdisc_ns or 0) <= (message.driver_ns or 0) - (message.sched_ns or 0)


def test_a_bucket_cuts_what_is_too_large_for_it(lab: Lab, veth: NetworkPath) -> None:
    shape(lab.client, "client0", Tbf(rate_bit_s=10_000_000, burst_bytes=1600))
    with tcp_pair(veth) as (sender, receiver), run(lab) as tx:
        read_ns = []
        for _ in range(5):
            sender.send(bytes(10_000))
            read_all(receiver, 10_000)
            read_ns.append(time.monotonic_ns())
            time.sleep(0.02)
        snapshot = done(tx, 5)
        messages = events(tx)
    assert_accounted(snapshot, "stamped", 5)
    assert {reason for _, reason in all_discarded(snapshot)} <= {"no_stamp"}
    # Six packets of 1514 bytes go before the last one; the bucket holds one.
    for message, end_ns in zip(messages, read_ns, strict=True):
        if message.qdisc_ns is not None:
            assert 0.9 * 5 * 1514 * 8e2 < message.qdisc_ns < end_ns - (message.sched_ns or 0)


def test_a_device_below_in_another_namespace_is_no_retransmission(lab: Lab) -> None:
    # A container's macvlan: the device below it is the host's, and may have the number there that it has here.
    index = lab.client.call(socket.if_nametoindex, "client0")
    with Namespace() as container:
        ip(lab.client, f"link add link client0 name mac0 index {index} netns {container.pid} type macvlan mode bridge")
        ip(container, "addr add 10.77.0.9/24 dev mac0")
        ip(container, "link set mac0 up")
        for namespace, device in ((lab.client, "client0"), (lab.server, "server0")):
            ip(namespace, f"link set {device} arp on promisc on")
        path = NetworkPath(container, lab.server, "10.77.0.2", "server0")
        with tcp_pair(path) as flow, run_in([container]) as tx:
            assert ping(*flow, 23) == 23
            assert_each(done(tx, 23), "stamped", 23)
            messages = events(tx)
    assert {tuple(device.name for device in message.devices) for message in messages} == {("mac0",)}
    assert {message.retransmits for message in messages} == {0}
    assert all(message.qdisc_ns for message in messages)
