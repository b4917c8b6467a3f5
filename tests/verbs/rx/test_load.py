# SPDX-License-Identifier: Apache-2.0
"""Under as much traffic as this machine gives: nearly every hook run gives a sample, and what does not is counted."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Workload
from tests.lab.measure import UDP_DATA_HOPS, NetworkPath, counts, discarded, ping, run, udp_pair, way

if TYPE_CHECKING:
    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root

# A second or less of a machine at hand; however slow another one is, it is as many.
MESSAGES = {"tcp": 5_000, "udp": 50_000}
LIMIT_S = 120


def load(lab: Lab, path: NetworkPath, protocol: str) -> tuple[Snapshot, int]:
    """Send as fast as it goes; return what was seen, and how many reads or datagrams there were."""
    with run(lab) as rx:
        bind = ("--bind", path.host, "--limit", LIMIT_S)
        with Workload(path.receiver, f"{protocol}-sink", *bind) as sink:
            size = 65_536 if protocol == "tcp" else 64
            words = ("--size", size, "--count", MESSAGES[protocol], "--limit", LIMIT_S)
            Workload(path.sender, f"{protocol}-send", path.host, sink.port, *words).result(LIMIT_S)
            summary = sink.result() if protocol == "tcp" else sink.stop()
        return rx.interval(), summary.messages


def assert_nearly_all(snapshot: Snapshot, hops: tuple[str, ...]) -> None:
    """At each hop at least 99 % of the packets of the hop before give a sample.

    The counters of discarded samples would do, were it not that those of others on this machine may be in them.
    """
    found = counts(snapshot)
    for before, hop in pairwise(hops):
        assert found[hop] >= 0.99 * found[before] > 0, (before, hop, found, snapshot.discarded)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["veth-4", "lo-4", "lo-6"])
def test_a_saturating_tcp_stream_gives_a_sample_at_each_hook(lab: Lab, name: str) -> None:
    snapshot, reads = load(lab, way(lab, name), "tcp")
    found = counts(snapshot)
    assert reads > 0
    assert found["rx.tcp_queue"] > 100
    assert_nearly_all(snapshot, ("rx.core", "rx.ip", "rx.tcp"))
    # Every segment that was queued was read, has shared its sample, or had come before.
    merged = discarded(snapshot).get(("rx.tcp_read", "merged"), 0)
    duplicate = discarded(snapshot).get(("rx.tcp_read", "duplicate"), 0)
    assert found["rx.tcp_read"] + merged + duplicate == found["rx.tcp_queue"]
    assert found["rx.tcp_total"] == found["rx.tcp_read"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["veth-4", "lo-4", "lo-6"])
def test_a_flood_of_datagrams_gives_a_sample_at_each_hook(lab: Lab, name: str) -> None:
    snapshot, datagrams = load(lab, way(lab, name), "udp")
    assert datagrams > 100
    assert_nearly_all(snapshot, ("rx.core", "rx.ip", "rx.udp"))
    # What the full buffer refuses is not queued. The reader's own count is the independent one.
    assert counts(snapshot)["rx.udp_read"] == counts(snapshot)["rx.udp_total"] == pytest.approx(datagrams, rel=0.01)
    assert counts(snapshot)["rx.udp_queue"] >= 0.99 * datagrams


def test_one_in_seven_is_one_in_seven(lab: Lab, veth: NetworkPath) -> None:
    packets, sample = 20_000, 7
    with udp_pair(veth) as (sender, receiver), run(lab, sample=sample) as rx:
        for _ in range(packets // 100):
            for _ in range(100):
                sender.send(bytes(100))
            for _ in range(100):
                receiver.recv(200)
        snapshot = rx.interval()
    found = counts(snapshot)
    followed = found["rx.core"]
    # Gaps are uniform on 1..2N-1: a renewal process, whose count has the variance n sigma^2 / N^3.
    gap_variance = ((2 * sample - 1) ** 2 - 1) / 12
    deviation = math.sqrt(packets * gap_variance / sample**3)
    assert abs(followed - packets / sample) <= 5 * deviation
    for hop in ("rx.ip", *UDP_DATA_HOPS):
        assert found[hop] == followed
    (note,) = snapshot.notes
    assert [int(number) for number in re.findall(r"\d+", note.replace(",", ""))] == [followed, packets]
    assert snapshot.sampling_1_in == sample
    assert discarded(snapshot) == {}


def test_sampling_does_not_follow_a_pattern_in_the_traffic(lab: Lab, veth: NetworkPath) -> None:
    # Every seventh datagram is larger; a sampler that counted to seven would see all of them or none.
    with udp_pair(veth) as (sender, receiver), run(lab, sample=7, ports=[receiver.getsockname()[1]]) as rx:
        with udp_pair(veth) as (other_sender, other):
            for _ in range(1500):
                ping(sender, receiver, 1)
                ping(other_sender, other, 6)
        followed = counts(rx.interval())["rx.udp_total"]
    # Each of the 1,500 is followed with a probability of 1/7: 214 +- 13.5.
    assert abs(followed - 1500 / 7) <= 5 * math.sqrt(1500 * 6 / 49)
