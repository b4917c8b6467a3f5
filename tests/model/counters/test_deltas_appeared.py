# SPDX-License-Identifier: Apache-2.0
"""What was not there before: whether it has counted from 0 since, or is only seen for the first time."""

from __future__ import annotations

import pytest

from hopscope.model.counters.deltas import moves
from hopscope.model.counters.readings import HOST, Key, Readings, Unread

NETNS = 4026531840
OTHER = 4026532001
RX = Key(NETNS, "link", "eth0", "rx_packets")


def readings(numbers: dict[Key, int], *, unread: tuple[Unread, ...] = ()) -> Readings:
    return Readings(0, 0, numbers, unread=unread)


def appeared(before: dict[Key, int], key: Key, *, unread: tuple[Unread, ...] = ()) -> list[tuple[int, str]]:
    found = moves(readings(before, unread=unread), readings({**before, key: 700}))
    return [(move.by, move.how) for move in found if move.key == key]


@pytest.mark.parametrize(
    "key",
    [
        Key(NETNS, "qdisc", "eth0 tbf 8001:", "drops"),  # a qdisc that is put on it
        Key(NETNS, "class", "eth0 htb 1:10", "drops"),
        Key(NETNS, "ethtool", "eth0", "rx_queue_7_drops"),  # a queue that it gets
        Key(NETNS, "udp_socket", "0.0.0.0:53 inode 9", "drops"),  # it begins to lose
        Key(NETNS, "netstat", "", "TcpExtNew"),
    ],
)
def test_what_is_new_of_what_was_there_counted_from_0(key: Key) -> None:
    assert appeared({RX: 5}, key) == [(700, "appeared")]


@pytest.mark.parametrize("source", ["link", "ethtool", "qdisc", "class"])
def test_an_interface_with_another_name_keeps_its_counters(source: str) -> None:
    assert appeared({RX: 5}, Key(NETNS, source, "eth1", "rx_dropped")) == []
    assert appeared({RX: 5}, Key(NETNS, source, "eth1 fq 8001:", "drops")) == []
    # Nor is a name that only begins like another's the same.
    assert appeared({RX: 5}, Key(NETNS, source, "eth01", "rx_dropped")) == []


def test_an_interface_that_comes_from_another_namespace_keeps_its_counters() -> None:
    before = {RX: 5, Key(OTHER, "link", "lo", "rx_packets"): 1}
    assert appeared(before, Key(OTHER, "link", "eth0", "rx_dropped")) == []


def test_a_namespace_that_is_seen_for_the_first_time_is_not_new() -> None:
    assert appeared({RX: 5}, Key(OTHER, "netstat", "", "TcpExtListenDrops")) == []
    assert appeared({Key(HOST, "softnet", "cpu 0", "dropped"): 5}, Key(OTHER, "snmp", "", "UdpInErrors")) == []


def test_a_cpu_that_comes_back_goes_on_counting() -> None:
    assert appeared({Key(HOST, "softnet", "cpu 0", "dropped"): 5}, Key(HOST, "softnet", "cpu 1", "dropped")) == []


def test_a_source_that_could_not_be_read_had_its_values() -> None:
    key = Key(NETNS, "netstat", "", "TcpExtListenDrops")
    assert appeared({RX: 5}, key, unread=(Unread(NETNS, "netstat", "why"),)) == []
