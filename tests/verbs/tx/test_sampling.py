# SPDX-License-Identifier: Apache-2.0
"""Not every message is followed, where that is asked for: how many are, and that it is said; and groups."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.veth import CLIENT_IPV4
from tests.lab.measure import all_discarded, counts, group_counts, ping, tcp_pair, udp_pair, wait_acknowledged, way
from tests.verbs.rx.test_filters import cgroups
from tests.verbs.rx.test_groups import flow_label
from tests.verbs.tx.measure import UDP_HOPS, messages, run_tx, run_udp, total_when
from tests.verbs.tx.test_filters import traffic

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root


@pytest.mark.parametrize("one_in", [4, 16])
def test_sampling_follows_one_in_n_and_says_so(lab: Lab, veth: NetworkPath, one_in: int) -> None:
    sent = 16_000
    with udp_pair(veth) as flow, run_udp(lab, sample=one_in) as tx:
        assert ping(*flow, sent, 10) == sent
        snapshot = tx.interval()
    followed = counts(snapshot)["tx.udp"]
    # Six standard deviations of so many independent throws.
    assert followed == pytest.approx(sent / one_in, abs=6 * (sent * (1 / one_in) * (1 - 1 / one_in)) ** 0.5)
    assert counts(snapshot) == {**dict.fromkeys(UDP_HOPS, followed), "tx.udp_free": 0}
    assert snapshot.sampling_1_in == one_in
    assert f"{followed:,} of {sent:,} messages followed" in snapshot.notes


def test_sampling_does_not_prefer_the_first_of_many_flows(lab: Lab, veth: NetworkPath) -> None:
    flows, one_in = 400, 8
    with run_udp(lab, sample=one_in) as tx:
        for _ in range(flows):
            with udp_pair(veth) as flow:
                assert ping(*flow, 1) == 1
        followed = counts(tx.interval())["tx.udp"]
    assert followed == pytest.approx(flows / one_in, abs=6 * (flows / one_in) ** 0.5)


def test_a_pattern_in_the_traffic_does_not_hide_from_sampling(lab: Lab, veth: NetworkPath) -> None:
    sent, one_in = 8000, 4
    with udp_pair(veth) as (sender, receiver), run_udp(lab, sample=one_in, events=True) as tx:
        for number in range(sent):
            sender.send(bytes(10 + number % one_in))
            receiver.recv(100)
        single = messages(tx)
    for length in range(10, 10 + one_in):
        found = sum(message.len_bytes == length for message in single)
        assert found == pytest.approx(sent / one_in**2, abs=6 * (sent / one_in**2) ** 0.5)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_rate_is_a_limit_for_each_flow(lab: Lab, veth: NetworkPath, protocol: str) -> None:
    rate = 20
    pair = udp_pair if protocol == "udp" else tcp_pair
    with pair(veth) as one, pair(veth) as other, run_tx(lab, protocol=protocol, rate=rate, events=True) as tx:
        began_s = last_s = time.monotonic()
        least = 1
        while (now_s := time.monotonic()) - began_s < 1:
            if now_s - last_s > 1 / rate:
                least, last_s = least + 1, now_s
            assert ping(*one, 20) + ping(*other, 20) == 40
        lasted_s = time.monotonic() - began_s
        if protocol == "tcp":
            wait_acknowledged(one[0])
            wait_acknowledged(other[0])
        snapshot, single = tx.interval(), messages(tx)
    flows: dict[int, list[int]] = {}
    for message in single:
        flows.setdefault(message.cookie, []).append(message.handed_ns or 0)
    assert len(flows) == 2
    for times_ns in flows.values():
        # One at once, then one whenever the gap is over and something is sent.
        assert least / 2 < len(times_ns) <= rate * lasted_s + 1
    assert any("messages followed" in note for note in snapshot.notes)


def test_group_by_interface_knows_unconnected_senders(lab: Lab) -> None:
    with run_udp(lab, group_by="interface") as tx:
        for path, sent in ((way(lab, "veth-4"), 23), (way(lab, "lo-4"), 7)):
            new = path.sender.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
            with udp_pair(path) as (_, receiver), new as unconnected:
                for _ in range(sent):
                    unconnected.sendto(b"x", receiver.getsockname())
        found = group_counts(tx.interval(), "tx.udp_total")
    assert {name.partition("@")[0]: count for name, count in found.items()} == {"client0": 23, "lo": 7}


def test_group_by_namespace(lab: Lab) -> None:
    with udp_pair(way(lab, "veth-4")) as one, udp_pair(way(lab, "lo-4")) as other, run_udp(lab, group_by="netns") as tx:
        assert ping(*one, 23) + ping(*other, 7) == 30
        found = group_counts(tx.interval(), "tx.udp_total")
    assert {int(name.split()[0]): count for name, count in found.items()} == {lab.client.pid: 23, lab.server.pid: 7}


def test_group_by_process(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run_udp(lab, group_by="process") as tx:
        assert ping(*flow, 23) == 23
        traffic(veth, "udp", 69, "--comm", "group-name")
        found = group_counts(tx.interval(), "tx.udp_total")
    (other,) = (name for name in found if "group-name" in name)
    assert found.pop(other) == 69
    ((own, count),) = found.items()
    assert count == 23
    assert str(os.getpid()) in own


def test_group_by_cgroup(lab: Lab, veth: NetworkPath) -> None:
    with cgroups() as (wanted, _, other), run_udp(lab, group_by="cgroup") as tx:
        traffic(veth, "udp", 23, "--cgroup", wanted)
        traffic(veth, "udp", 69, "--cgroup", other)
        found = group_counts(tx.interval(), "tx.udp_total")
    assert {name.rpartition("/")[2]: count for name, count in found.items()} == {"wanted": 23, "other": 69}


@pytest.mark.parametrize("key", ["port", "peer", "flow"])
def test_group_by_what_makes_a_flow(lab: Lab, veth: NetworkPath, key: str) -> None:
    new = veth.sender.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    with udp_pair(veth) as (_, one), udp_pair(veth) as (_, other), tcp_pair(veth) as tcp, new as unconnected:
        unconnected.bind((CLIENT_IPV4, 0))
        with run_tx(lab, group_by=key) as tx:
            for receiver, sent in ((one, 23), (other, 7)):
                for _ in range(sent):
                    unconnected.sendto(b"x", receiver.getsockname())
            assert ping(*tcp, 5) == 5
            wait_acknowledged(tcp[0])
            snapshot = total_when(tx, "tx.total", 5)
        labels = [
            flow_label(key, protocol, own, peer.getsockname(), lab.client.inode)
            for protocol, own, peer in (("udp", unconnected, one), ("udp", unconnected, other), ("tcp", *tcp))
        ]
    expected = dict.fromkeys(labels[:2], 30) if key != "flow" else dict(zip(labels, (23, 7), strict=False))
    assert group_counts(snapshot, "tx.udp_total") == expected
    assert group_counts(snapshot, "tx.total") == {labels[2]: 5}


def test_group_by_cpu_adds_up(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run_udp(lab, group_by="cpu") as tx:
        assert ping(*flow, 1009) == 1009
        found = group_counts(tx.interval(), "tx.udp_total")
    assert sum(found.values()) == 1009
    assert found.keys() <= {str(cpu) for cpu in os.sched_getaffinity(0)}


def test_groups_that_find_no_row_share_one_and_are_counted(lab: Lab, veth: NetworkPath) -> None:
    with run_udp(lab, group_by="process", max_groups=1) as tx:
        traffic(veth, "udp", 23)
        traffic(veth, "udp", 69)
        snapshot = tx.interval()
    assert sorted(group_counts(snapshot, "tx.udp_total").values()) == [23, 69]
    assert group_counts(snapshot, "tx.udp_total")["other"] == 69
    assert any("the limit of 1 group is reached" in note for note in snapshot.notes)
    assert all_discarded(snapshot) == {}


def test_tcp_is_grouped_too(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as flow, run_tx(lab, protocol="tcp", group_by="interface") as tx:
        assert ping(*flow, 23) == 23
        found = group_counts(total_when(tx, "tx.total", 23), "tx.total")
    ((name, count),) = found.items()
    assert (name.partition("@")[0], count) == ("client0", 23)
