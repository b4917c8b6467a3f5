# SPDX-License-Identifier: Apache-2.0
"""Which hop is named, out of times made up here."""

from __future__ import annotations

from bench.slow import hops_table, slowest
from hopscope.model.histogram import Histogram

FAST = {"tx.qdisc": Histogram.from_values([1_000] * 10), "rx.tcp_read": Histogram.from_values([90_000] * 10)}
# Few of them wait, and these for long: the others are read as soon as before.
SLOW = {
    "tx.qdisc": Histogram.from_values([1_000] * 9 + [400_000]),
    "rx.tcp_read": Histogram.from_values([92_000] * 10),
}


def test_the_hop_with_the_most_time_more_is_named_and_not_the_longest() -> None:
    assert slowest(FAST, SLOW) == "tx.qdisc"
    assert slowest(SLOW, FAST) == "rx.tcp_read"


def test_the_table_begins_with_it() -> None:
    _, first, _ = hops_table(FAST, SLOW).splitlines()
    assert first.split()[:2] == ["tx.qdisc", "39.9µs"]
    assert first.split()[-1] == "0.10"
