# SPDX-License-Identifier: Apache-2.0
"""Packets of a real recording that are routed, bridged or put into a tunnel on this host: each is followed whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.router import BEHIND, CLIENT, MESSAGES, PORT, ROUTER, SERVER, Network, cabled, record, routed, run, ways

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

TUNNEL_PORT = 4789


def between(first: str, second: str) -> list[str]:
    """Return the points and devices from the device that sends over the host between to the one that receives."""
    sent, *sent_below = first.split()
    *received_below, received = second.split()
    return [
        *(f"{point} {name}" for name in (sent, *sent_below) for point in ("tx.queue", "tx.start")),
        *(f"{point} {name}" for name in (*received_below, received) for point in ("rx.driver", "rx.core")),
    ]


def assert_whole(folder: Path, source: str, service: str, through: list[str]) -> None:
    """Fail unless every message is a packet that goes through these points, and is received."""
    found = {name: packets for name, packets in ways(folder).items() if name.startswith(f"{source}:")}
    assert all(name.endswith(f" > {service}") for name in found)
    assert sorted(map(len, found.values())) == [MESSAGES, MESSAGES]  # of TCP and of UDP
    through = [*through, f"rx.l4 {through[-1].split()[1]}"]
    for packets in found.values():
        assert [points[: len(through)] for points in packets] == [through] * MESSAGES


def test_routed(tmp_path: Path) -> None:
    with routed() as network:
        record(network, tmp_path / "trace", SERVER, PORT)
    way = [*between("far0", "in0"), *between("out0", "far0")]
    assert_whole(tmp_path / "trace", CLIENT, f"{SERVER}:{PORT}", way)


def test_bridged(tmp_path: Path) -> None:
    with cabled() as network:
        client, middle, server = network
        run(middle, "ip link add br0 type bridge", "ip link set br0 up")
        for name in ("in0", "out0"):
            run(middle, f"ip link set {name} master br0")
        for end, address in ((client, "10.79.0.1"), (server, "10.79.0.2")):
            run(end, f"ip addr add {address}/24 dev far0")
        record(network, tmp_path / "trace", "10.79.0.2", PORT)
    way = [*between("far0", "in0"), *between("out0", "far0")]
    assert_whole(tmp_path / "trace", "10.79.0.1", f"10.79.0.2:{PORT}", way)


def tunnel(network: Network, ends: tuple[int, int], underlay: tuple[str, str], overlay: tuple[str, str]) -> None:
    """Put a device vx0 into two hosts of the network."""
    for number, here, there, own in zip(ends, underlay, reversed(underlay), overlay, strict=True):
        device = f"vx0 type vxlan id 5 local {here} remote {there} dstport {TUNNEL_PORT}"
        done = network[number].run(f"ip link add {device}".split(), capture_output=True, text=True)
        if done.returncode:
            assert "Unknown device type" in done.stderr
            pytest.skip(f"no tunnels here: {done.stderr}")
        run(network[number], f"ip addr add {own}/24 dev vx0", "ip link set vx0 up")


def test_through_a_tunnel_from_end_to_end(tmp_path: Path) -> None:
    with routed() as network:
        tunnel(network, (0, 2), (CLIENT, SERVER), ("10.80.0.1", "10.80.0.2"))
        record(network, tmp_path / "trace", "10.80.0.2", PORT)
    way = [*between("vx0 far0", "in0"), *between("out0", "far0 vx0")]
    assert_whole(tmp_path / "trace", "10.80.0.1", f"10.80.0.2:{PORT}", way)


def test_put_into_a_tunnel_by_a_router(tmp_path: Path) -> None:
    with routed() as network:
        tunnel(network, (1, 2), (BEHIND, SERVER), ("10.80.0.1", "10.80.0.2"))
        run(network[2], f"ip route add {ROUTER.rpartition('.')[0]}.0/24 via 10.80.0.1")
        record(network, tmp_path / "trace", "10.80.0.2", PORT)
    way = [*between("far0", "in0"), *between("vx0 out0", "far0 vx0")]
    assert_whole(tmp_path / "trace", CLIENT, f"10.80.0.2:{PORT}", way)
