# SPDX-License-Identifier: Apache-2.0
"""NAPI polls in the softirq, in a thread, and in the system call of a reader that polls busily."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import UDP_DATA_HOPS, all_discarded, assert_each, limit, ping, run, udp_pair, way
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab, Namespace
    from hopscope.model.histogram import Histogram
    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root

DEVICE = "server0"
SO_BUSY_POLL, SO_INCOMING_NAPI_ID = 46, 56


def write_sysfs(namespace: Namespace, file: str, text: str) -> None:
    """Write to a device's folder, which a mount of the namespace's own sysfs shows."""
    script = f"mount -t sysfs sysfs /sys && echo {text} >/sys/class/net/{DEVICE}/{file}"
    done = namespace.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{file} of a veth cannot be set on this kernel: {done.stderr.strip()}")


@pytest.fixture
def napi(lab: Lab) -> Lab:
    """A veth whose receiving end polls: it does with GRO, for what the other end has not put together."""
    lab.server.run(["ethtool", "-K", DEVICE, "gro", "on"], check=True, capture_output=True)
    lab.client.run(["ethtool", "-K", "client0", "tso", "off"], check=True, capture_output=True)
    return lab


def histograms(snapshot: Snapshot) -> list[Histogram]:
    return [
        row.histogram
        for row in snapshot.hops
        if row.hop == "rx.napi" and row.group["interface"].startswith(f"{DEVICE}@")
    ]


def polls(snapshot: Snapshot) -> int:
    """Return the device's polls in the softirq."""
    return sum(each.count for each in histograms(snapshot))


def duration_ns(snapshot: Snapshot) -> int:
    """Return how long they took in all."""
    return sum(each.sum_ns for each in histograms(snapshot))


def outside(snapshot: Snapshot) -> int:
    return all_discarded(snapshot).get(("rx.napi", "outside"), 0)


def test_polls_in_the_softirq_are_measured(napi: Lab) -> None:
    with udp_pair(way(napi, "veth-4")) as flow, RxCollector(RxOptions(group_by="interface")) as rx:
        began_ns = time.monotonic_ns()
        assert ping(*flow, 200) == 200
        took_ns = time.monotonic_ns() - began_ns
        snapshot = rx.interval()
    # A poll ends after the reader has its datagram.
    assert 199 <= polls(snapshot) <= 210
    assert 0 < duration_ns(snapshot) < took_ns


def test_polls_in_a_thread_are_outside(napi: Lab) -> None:
    write_sysfs(napi.server, "threaded", "1")
    with udp_pair(way(napi, "veth-4")) as flow, RxCollector(RxOptions(group_by="interface")) as rx:
        assert ping(*flow, 200) == 200
        # Each datagram is awaited before the next is sent; the last poll ends after the reader has its datagram.
        eventually(lambda: outside(rx.interval() and rx.total()) >= 200)
        snapshot = rx.total()
    assert polls(snapshot) == 0


def test_packets_of_a_thread_are_measured(napi: Lab) -> None:
    write_sysfs(napi.server, "threaded", "1")
    with udp_pair(way(napi, "veth-4")) as flow, run(napi) as rx:
        assert ping(*flow, 200) == 200
        assert_each(rx.interval(), UDP_DATA_HOPS, 200)


def test_polls_of_a_busy_reader_are_outside_and_those_after_are_not(napi: Lab) -> None:
    with udp_pair(way(napi, "veth-4")) as (sender, receiver):
        assert ping(sender, receiver, 1) == 1
        if not receiver.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID):
            pytest.skip("this kernel's veth gives a socket no NAPI to poll")
        with RxCollector(RxOptions(group_by="interface")) as rx:
            receiver.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, 20_000)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 50_000))
            for _ in range(100):  # a poll or two each, where the CPU is taken away meanwhile
                with pytest.raises(BlockingIOError):
                    receiver.recv(100)
                rx.interval()
                if outside(busy := rx.total()) >= 10:
                    break
            receiver.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, 0)
            limit(receiver)
            began_ns = time.monotonic_ns()
            assert ping(sender, receiver, 50) == 50
            took_ns = time.monotonic_ns() - began_ns
            after = rx.interval()
    assert outside(busy) >= 10
    # The last one, by which the reader gives the instance back, is its own as well.
    assert polls(busy) == 0
    assert 49 <= polls(after) <= 55
    assert 0 < duration_ns(after) < took_ns
