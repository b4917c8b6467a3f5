# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hopscope.model.histogram import Histogram
from hopscope.model.share import Share, shares
from hopscope.model.snapshot import HopRow

CHAINS = {"rx.core": "", "rx.tcp_total": None, "rx.softirq": None}


def row(hop: str, *values_ns: int, **group: str) -> HopRow:
    chain = CHAINS.get(hop, hop.partition("_")[0])
    return HopRow(hop, "from", "to", "packet", group, Histogram.from_values(values_ns), chain)


def test_shares_of_one_protocol_include_the_common_hops() -> None:
    rows = [row("rx.core", 100), row("rx.tcp", 100), row("rx.tcp_read", 600, 200), row("rx.tcp_total", 1_000)]
    assert shares(rows) == [Share(0.1, largest=False), Share(0.1, largest=False), Share(0.8, largest=True), None]


def test_common_hops_have_no_share_beside_two_protocols() -> None:
    rows = [row("rx.core", 100), row("rx.tcp_read", 300), row("rx.tcp_wake", 700), row("rx.udp_read", 5)]
    assert shares(rows) == [None, Share(0.3, largest=False), Share(0.7, largest=True), Share(1.0, largest=True)]


def test_a_protocol_without_samples_does_not_count() -> None:
    rows = [row("rx.core", 250), row("rx.tcp_read", 750), row("rx.udp_read")]
    assert shares(rows) == [Share(0.25, largest=False), Share(0.75, largest=True), None]


def test_hops_that_stand_alone_are_left_out() -> None:
    rows = [row("rx.softirq", 5_000), row("rx.core", 10)]
    assert shares(rows) == [None, Share(1.0, largest=True)]


def test_groups_are_apart() -> None:
    rows = [
        row("rx.core", 100, interface="lo"),
        row("rx.core", 300, interface="eth0"),
        row("rx.tcp_read", 300, interface="lo"),
        row("rx.udp_read", 900, interface="eth0"),
    ]
    parts = [share.part for share in shares(rows) if share]
    assert parts == [0.25, 0.25, 0.75, 0.75]


def test_no_samples_no_shares() -> None:
    assert shares([row("rx.core"), row("rx.tcp_read", 0)]) == [None, None]
    assert shares([]) == []
