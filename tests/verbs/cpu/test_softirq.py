# SPDX-License-Identifier: Apache-2.0
"""Softirqs and polls: their time, by a BPF program that takes a known one, and their packets, exactly."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Tbf
from tests.lab.measure import udp_pair, way
from tests.verbs.cpu.measure import NOBODY, Burner, assert_sane, of_device, of_group, of_process, run, spin

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from hopscope.model.cpu import Part

pytestmark = pytest.mark.root

BURN_NS = 50_000
PACKETS = 1500
ROUNDS = 5
NAPI = {"gro": True, "tso": False}


@pytest.fixture
def napi() -> Iterator[Lab]:
    """A veth that polls by NAPI: GRO makes it, and without TSO it does so for UDP, too."""
    with Lab(offloads=NAPI) as lab:
        yield lab


@pytest.fixture(params=["burn_xdp", "burn_tc"])
def burner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Burner]:
    with Burner(tmp_path, request.param) as made:
        yield made


def exchange(sender: socket.socket, receiver: socket.socket, packets: int) -> None:
    for _ in range(packets):
        sender.send(bytes(100))
        receiver.recv(200)


def part_of(parts: dict[str, Part], *names: str) -> Part:
    total = parts[names[0]]
    for name in names[1:]:
        total += parts[name]
    return total


def test_a_known_burden_is_in_the_softirq_and_not_in_the_call(napi: Lab, burner: Burner) -> None:
    with (
        udp_pair(way(napi, "veth-4")) as flow,
        burner.on(napi.server, "server0"),
        run("interface") as devices,
        run("process") as processes,
    ):
        rounds = []
        for _ in range(ROUNDS):
            found = []
            for burn_ns in (0, BURN_NS):
                burner.each(burn_ns)
                devices.interval(), processes.interval()
                exchange(*flow, PACKETS)
                assert burner.packets == PACKETS
                softirq = part_of(of_device(devices.interval(), "server0", napi.server), "net_rx", "ksoftirqd")
                own = of_process(processes.interval())
                assert softirq.packets == own["send"].runs == own["receive"].runs == PACKETS
                found.append((softirq.ns, own["send"].ns, own["receive"].ns))
            rounds.append([(after - before) / burner.burned_ns for before, after in zip(*found, strict=True)])
    # Whoever takes our CPU away in one round does not do so in most of them.
    softirq_share, send_share, receive_share = map(statistics.median, zip(*rounds, strict=True))
    # The program's clock goes on in hard interrupts, which are not NET_RX, and stops for none before its time.
    assert 0.95 < softirq_share < 1.05
    assert send_share < 0.05
    assert receive_share < 0.05


def test_each_packet_is_polled_once(napi: Lab) -> None:
    with udp_pair(way(napi, "veth-4")) as flow, run("interface") as cpu:
        cpu.interval()
        exchange(*flow, PACKETS)
        snapshot = cpu.interval()
        assert part_of(of_device(snapshot, "server0", napi.server), "net_rx", "ksoftirqd").packets == PACKETS
    assert_sane(snapshot)


@pytest.mark.parametrize("name", ["veth-4", "lo-6"])
def test_packets_of_devices_without_napi_are_the_backlogs(lab: Lab, name: str) -> None:
    with udp_pair(way(lab, name)) as flow, run("interface") as cpu:
        cpu.interval()
        exchange(*flow, PACKETS)
        snapshot = cpu.interval()
        # Others of this machine have theirs there, too.
        assert part_of(of_group(snapshot, "backlog"), "net_rx", "ksoftirqd").packets >= PACKETS
        assert of_device(snapshot, "server0", lab.server) == NOBODY
    assert_sane(snapshot)


def test_a_thread_that_only_computes_takes_nothing() -> None:
    with run("process") as cpu:
        cpu.interval()
        spin(0.3)
        assert of_process(cpu.interval()) == NOBODY


def softirqs(*names: str) -> int:
    """Return how many the kernel itself has counted, on all CPUs."""
    lines = (line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:])
    return sum(sum(map(int, counts)) for name, *counts in lines if name[:-1] in names)


def test_softirqs_are_counted_as_the_kernel_counts_them() -> None:
    # A bucket that is empty makes NET_TX run; timers and the scheduler have theirs anyhow.
    with Lab(tbf=Tbf(rate_bit_s=2_000_000)) as lab, udp_pair(way(lab, "veth-4")) as flow, run("cpu") as cpu:
        before = softirqs("NET_RX", "NET_TX"), softirqs("NET_TX")
        cpu.interval()
        exchange(*flow, 300)
        parts = cpu.interval().total.parts
        counted, counted_tx = softirqs("NET_RX", "NET_TX") - before[0], softirqs("NET_TX") - before[1]
    assert 0 < parts["net_tx"].runs <= counted_tx
    # The two do not look at the same instant, and some come upon processes that this kernel does not let be watched.
    assert 0.8 * counted < part_of(parts, "net_rx", "net_tx", "ksoftirqd").runs <= counted
