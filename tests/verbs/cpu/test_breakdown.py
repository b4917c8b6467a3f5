# SPDX-License-Identifier: Apache-2.0
"""The categories follow what the kernel is made to do, and their times what that costs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.rules import rules
from hopscope.lab.links import set_offloads
from hopscope.live.labels import NamespaceNames
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
from tests.lab.measure import NetworkPath, in_thread, tcp_pair, udp_pair
from tests.verbs.tx.tcp_measure import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Lab
    from hopscope.model.cpu import CpuSnapshot

pytestmark = pytest.mark.root
_HZ = 4000
# Where the softirq's work is done, whoever runs it.
_SOFTIRQS = ("net_rx", "ksoftirqd")
_STREAM_BYTES = 100 << 20


def measured(act: Callable[[], object]) -> CpuSnapshot:
    """Return what it took to do something, a fifth of a second of it at a time."""
    with CpuCollector(CpuOptions(hz=_HZ)) as cpu:
        cpu.interval()
        with in_thread(act) as acting:
            while acting.is_alive():
                time.sleep(0.1)
                cpu.drain()
        return cpu.interval()


def ns_of(snapshot: CpuSnapshot, category: str) -> int:
    """Return the time of a category in the softirqs."""
    return sum(share.ns for share in snapshot.breakdown() if share.category == category and share.part in _SOFTIRQS)


def softirq_ns(snapshot: CpuSnapshot) -> int:
    return sum(snapshot.total.parts[name].ns for name in _SOFTIRQS)


def part_of(snapshot: CpuSnapshot, category: str) -> float:
    """Return the share of a category in the softirqs (0..1)."""
    return ns_of(snapshot, category) / softirq_ns(snapshot)


def test_25000_pointless_rules_are_the_time_that_they_take(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver):

        def send(count: int) -> None:
            for _ in range(count):
                sender.send(bytes(100))
                receiver.recv(200)

        without = measured(lambda: send(1000))
        lab.server.run(["nft", "-f", "-"], input=rules().encode(), check=True)
        with_rules = measured(lambda: send(1000))
        lab.server.run(["nft", "delete", "table", "ip", "lab"], check=True)
    assert part_of(without, "netfilter") < 0.3
    assert part_of(with_rules, "netfilter") > 0.7
    more_ns = softirq_ns(with_rules) - softirq_ns(without)
    assert ns_of(with_rules, "netfilter") == pytest.approx(more_ns, rel=0.15)
    assert {share.detail for share in with_rules.breakdown() if share.category == "netfilter"} >= {"nft input"}


def test_without_gro_tcp_has_more_to_do(lab: Lab, veth: NetworkPath) -> None:
    lab.client.call(set_offloads, "client0", {"tso": False, "gso": False})
    found = {}
    for gro in (True, False):
        lab.server.call(set_offloads, "server0", {"gro": gro})
        with tcp_pair(veth) as (sender, receiver):

            def stream() -> None:
                with in_thread(lambda: read_all(receiver, _STREAM_BYTES)):
                    sender.sendall(bytes(_STREAM_BYTES))

            found[gro] = measured(stream)
    assert part_of(found[True], "gro") > 0.02
    assert part_of(found[False], "gro") < part_of(found[True], "gro") / 4
    assert ns_of(found[False], "tcp") > 1.3 * ns_of(found[True], "tcp")


def test_a_bridge_in_the_path_appears(lab: Lab, veth: NetworkPath) -> None:
    found = {}
    for bridged in (False, True):
        if bridged:
            for words in (
                "link add bridge0 type bridge",
                "link set server0 master bridge0",
                "link set bridge0 up",
                "addr flush dev server0",
                "addr add 10.77.0.2/24 dev bridge0",
            ):
                lab.server.run(["ip", *words.split()], check=True)
            lab.client.run(["ip", "neigh", "flush", "all"], check=True)
        with udp_pair(veth) as (sender, receiver):
            sender.send(b"finds the neighbour")
            receiver.recv(100)

            def send() -> None:
                for _ in range(20_000):
                    sender.send(bytes(100))
                    receiver.recv(200)

            found[bridged] = measured(send)
    assert part_of(found[False], "bridge") < 0.005
    assert part_of(found[True], "bridge") > 0.02


def test_offloads_that_are_off_are_named_with_what_they_could_save(lab: Lab, veth: NetworkPath) -> None:
    inodes = [end.call(lambda: Path("/proc/thread-self/ns/net").stat().st_ino) for end in (lab.client, lab.server)]
    client, server = (
        f"{name}@{NamespaceNames().name(inode)}" for name, inode in zip(("client0", "server0"), inodes, strict=True)
    )
    said = {}
    for on in (False, True):
        lab.client.call(set_offloads, "client0", {"tx": on, "gso": on})
        lab.server.call(set_offloads, "server0", {"rx": on, "gro": on})
        with tcp_pair(veth) as (sender, receiver):

            def stream() -> None:
                with in_thread(lambda: read_all(receiver, _STREAM_BYTES)):
                    sender.sendall(bytes(_STREAM_BYTES))

            found = measured(stream)
        (said[on],) = [note for note in found.notes if "ffloads that are off" in note or "also off" in note] or [""]
        if not on:
            checksum_ns = sum(share.ns for share in found.breakdown() if share.category == "checksum")
            assert checksum_ns > 0.01 * found.total.ns
            assert f": checksum {checksum_ns / found.total.ns:.1%} (" in said[on]
    for feature, interface in (
        ("rx-checksumming", server),
        ("tx-checksumming", client),
        ("generic-receive-offload", server),
        ("generic-segmentation-offload", client),
    ):
        pattern = rf"{feature} on [^()]*{re.escape(interface)}"
        assert re.search(pattern, said[False]), (feature, said[False])
        assert not re.search(pattern, said[True]), (feature, said[True])
