# SPDX-License-Identifier: Apache-2.0
"""Durations against causes that are known: bounds are what the test itself did and how long it took in all."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.lab import Lab, Tbf, Workload, shape
from hopscope.model.histogram import Histogram, bucket_of, thresholds_ns
from hopscope.timestamping import Sof, enable, receive
from tests.lab.measure import (
    MS,
    TCP_DATA_HOPS,
    UDP_DATA_HOPS,
    NetworkPath,
    assert_each,
    counts,
    discarded,
    histogram,
    in_thread,
    ping,
    run,
    tcp_pair,
    udp_pair,
    unseen_datagrams,
)
from tests.stamping import stamping
from tests.waiting import eventually, state

if TYPE_CHECKING:
    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.rx.collector import RxCollector

pytestmark = pytest.mark.root

UDP_CHAIN = ("rx.core", "rx.ip", "rx.udp", "rx.udp_queue", "rx.udp_wake", "rx.udp_read")
TCP_CHAIN = ("rx.core", "rx.ip", "rx.tcp", "rx.tcp_queue", "rx.tcp_order", "rx.tcp_wake", "rx.tcp_read")


def sum_ns(snapshot: Snapshot, hops: tuple[str, ...]) -> int:
    return sum(histogram(snapshot, hop).sum_ns for hop in hops)


def assert_each_at_least(values: Histogram, lower_ns: int) -> None:
    """No sample is shorter, as far as buckets can tell; and on average it is exact."""
    assert not values.counts[: bucket_of(lower_ns)].any()
    assert values.sum_ns >= values.count * lower_ns


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_reader_that_sleeps_50_ms_waits_50_ms_to_wake(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    elapsed_ns = 0
    with (
        run(lab) as rx,
        Workload(veth.receiver, f"{protocol}-sink", "--bind", veth.host, "--sleep-ms", 50, "--count", 10) as sink,
        veth.sender.call(connected, veth, protocol, sink.port) as sender,
    ):
        for _ in range(10):
            started_ns = time.monotonic_ns()
            sender.send(bytes(100))
            wait_for(rx, f"rx.{protocol}_total", 1)
            elapsed_ns += time.monotonic_ns() - started_ns
        assert sink.result().messages == 10
        snapshot = rx.total()
    wake, read, total = (histogram(snapshot, f"rx.{protocol}_{hop}") for hop in ("wake", "read", "total"))
    assert wake.count == read.count == total.count == 10
    # It sleeps after the data came, so that the last time it came on a CPU is the end of its sleep.
    assert_each_at_least(wake, 50 * MS)
    assert wake.sum_ns + read.sum_ns <= total.sum_ns <= elapsed_ns


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_stopped_reader_waits_as_long_as_it_was_stopped(lab: Lab, either: NetworkPath, protocol: str) -> None:
    with (
        run(lab) as rx,
        Workload(either.receiver, f"{protocol}-sink", "--bind", either.host, "--count", 24) as sink,
        either.sender.call(connected, either, protocol, sink.port) as sender,
    ):
        # The reader is at its place once it has read something.
        sender.send(bytes(100))
        wait_for(rx, f"rx.{protocol}_read", 1)
        os.kill(sink.pid, signal.SIGSTOP)
        eventually(lambda: state(sink.pid) == "T")
        started_ns = time.monotonic_ns()
        for _ in range(23):
            sender.send(bytes(100))
        time.sleep(0.2)
        continued_ns = time.monotonic_ns()
        os.kill(sink.pid, signal.SIGCONT)
        sender.close()  # the end of a TCP stream, whose messages arrive in fewer reads
        sink.result()
        snapshot = rx.interval()
        ended_ns = time.monotonic_ns()
    wake, read, total = (histogram(snapshot, f"rx.{protocol}_{hop}") for hop in ("wake", "read", "total"))
    assert wake.count == read.count == total.count == 23
    assert_each_at_least(wake, 200 * MS)
    assert read.max_ns <= ended_ns - continued_ns
    assert total.max_ns <= ended_ns - started_ns


def connected(path: NetworkPath, protocol: str, port: int) -> socket.socket:
    sock = socket.socket(path.family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    sock.connect((path.host, port))
    if protocol == "tcp":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def wait_for(rx: RxCollector, hop: str, samples: int) -> None:
    """Take intervals until a hop has so many samples."""
    found = 0

    def there() -> bool:
        nonlocal found
        found += counts(rx.interval())[hop]
        return found >= samples

    eventually(there, f"{hop} does not get {samples} samples")


def test_a_reader_that_is_busy_elsewhere_waits_as_long(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as (sender, receiver), run(lab) as rx:
        for _ in range(5):
            sender.send(bytes(100))
            done_ns = time.monotonic_ns() + 20 * MS
            while time.monotonic_ns() < done_ns:
                pass
            receiver.recv(200)
        snapshot = rx.interval()
    assert_each_at_least(histogram(snapshot, "rx.udp_total"), 20 * MS)
    # Whether the kernel let it have the CPU all the while is not ours to say; the two hops share the wait.
    assert sum_ns(snapshot, ("rx.udp_wake", "rx.udp_read")) >= 5 * 20 * MS


def test_the_wait_before_the_driver_is_not_counted(lab: Lab, veth: NetworkPath) -> None:
    shape(lab.client, "client0", Tbf(1_000_000, burst_bytes=1600))
    with stamping(), udp_pair(veth) as (sender, receiver), run(lab) as rx:
        enable(receiver, Sof.RX_SOFTWARE | Sof.SOFTWARE)
        started_ns = time.monotonic_ns()
        for _ in range(20):
            sender.send(bytes(1000))
        read = [receive(receiver, 2000) for _ in range(20)]
        elapsed_ns = time.monotonic_ns() - started_ns
        snapshot = rx.interval()
    # 8 ms a packet at 1 Mbit/s: the last one has waited for nineteen, and all of them 1.5 s together.
    assert elapsed_ns > 140 * MS
    assert counts(snapshot)["rx.udp_total"] > 0
    # What comes after the driver, the kernel's own stamps say: they are taken there, too.
    after_ns = sum(each.read_ns - (each.software_ns or 0) for each in read)
    assert histogram(snapshot, "rx.udp_total").sum_ns < after_ns + 20 * MS


@pytest.mark.parametrize("options", [{}, {"protocol": "udp"}], ids=["at once", "deferred"])
def test_udp_hops_add_up_to_the_total(lab: Lab, path: NetworkPath, options: dict[str, Any]) -> None:
    with udp_pair(path) as (sender, receiver), run(lab, **options) as rx:
        with in_thread(lambda: [receiver.recv(200) for _ in range(200)]):
            for _ in range(200):
                sender.send(bytes(100))
        snapshot = rx.interval()
    assert_each(snapshot, ("rx.core", "rx.ip", *UDP_DATA_HOPS), 200)
    # What was not recognised at the read has no total.
    if not unseen_datagrams(snapshot):
        assert sum_ns(snapshot, UDP_CHAIN) == histogram(snapshot, "rx.udp_total").sum_ns


def test_tcp_hops_add_up_to_the_total(lab: Lab, path: NetworkPath) -> None:
    # With a filter on the socket the hops before it are of the same packets: those that carry data.
    with tcp_pair(path) as (sender, receiver), run(lab, ports=[receiver.getsockname()[1]]) as rx:
        with in_thread(lambda: read_all(receiver, 100 * 100)):
            for _ in range(100):
                sender.send(bytes(100))
        snapshot = rx.interval()
    found = counts(snapshot)
    for hop in ("rx.core", "rx.ip", "rx.tcp", *TCP_DATA_HOPS):
        assert found[hop] == found["rx.tcp_total"] > 0
    assert sum_ns(snapshot, TCP_CHAIN) == histogram(snapshot, "rx.tcp_total").sum_ns
    assert discarded(snapshot) == {}


def test_tcp_hops_after_the_queue_are_of_data_alone(lab: Lab, either: NetworkPath) -> None:
    with tcp_pair(either) as (sender, receiver), run(lab) as rx:
        ping(sender, receiver, 200)
        snapshot = rx.interval()
    total_ns = histogram(snapshot, "rx.tcp_total").sum_ns
    # The first three hops have the acknowledgements in them, too.
    assert counts(snapshot)["rx.tcp"] >= 200
    assert sum_ns(snapshot, TCP_CHAIN[3:]) < total_ns <= sum_ns(snapshot, TCP_CHAIN)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_since_entry_every_hop_counts_from_the_driver(lab: Lab, either: NetworkPath, protocol: str) -> None:
    with run(lab, since_entry=True, protocol=protocol) as rx:
        pair = tcp_pair if protocol == "tcp" else udp_pair
        with pair(either) as (sender, receiver):
            ping(sender, receiver, 200)
            snapshot = rx.interval()
    hops = ("rx.core", "rx.ip", f"rx.{protocol}", f"rx.{protocol}_queue", f"rx.{protocol}_read")
    sums_ns = [histogram(snapshot, hop).sum_ns for hop in hops]
    assert sums_ns == sorted(sums_ns)
    assert {histogram(snapshot, hop).count for hop in hops} == {200}
    assert sums_ns[-1] == histogram(snapshot, f"rx.{protocol}_total").sum_ns


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_sums_and_maxima_agree_with_their_buckets(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    pair = tcp_pair if protocol == "tcp" else udp_pair
    with pair(veth) as (sender, receiver), run(lab) as rx:
        for _ in range(3):
            ping(sender, receiver, 300)
            for row in rx.interval().hops:
                assert_consistent(row.histogram)
        for row in rx.total().hops:
            assert_consistent(row.histogram)


def assert_consistent(values: Histogram) -> None:
    if not values.count:
        assert values.sum_ns == values.max_ns == 0
        return
    used = np.flatnonzero(values.counts)
    assert bucket_of(values.max_ns) == used[-1]
    upper_ns = np.array(thresholds_ns())
    lower_ns = np.concatenate(([0], upper_ns + 1))
    assert (lower_ns[used] * values.counts[used]).sum() <= values.sum_ns <= (upper_ns[used] * values.counts[used]).sum()


def read_all(sock: socket.socket, len_bytes: int) -> None:
    while len_bytes:
        len_bytes -= len(sock.recv(len_bytes))
