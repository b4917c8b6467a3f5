# SPDX-License-Identifier: Apache-2.0
"""``rules``: ten TCP flows, and 25,000 rules that match nothing: at which hop these show, and which rate they leave.

The experiment of netstacklat's first test (xdp-project/bpf-examples): with the rules, the mean from a packet's arrival
to ``tcp_v4_do_rcv()`` rose from 12 to 200 µs, and the rate fell from 260 to 24 thousand packets a second. Here, on
other hardware, and between two namespaces: how many times as much is what can be compared. `rx` measures each hop; the
one on which a packet spends most time more is the one that is named.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.measure import Spread, table, turns
from hopscope.lab import Lab, Workload
from hopscope.lab.veth import SERVER_IPV4
from hopscope.term import format as fmt
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.model.histogram import Histogram

ROUNDS: Final = 4
RULES: Final = 25_000
_FLOWS: Final = 10
_SETTLE_S: Final = 0.5
_LOAD_S: Final = 1.5
_WITHOUT, _WITH = "no rules", f"{RULES:,} rules"
# The consecutive hops of a TCP segment, up to the function that netstacklat measures.
_TO_TCP: Final = ("rx.core", "rx.ip", "rx.tcp")
_WANTED: Final = "rx.tcp"
_PUBLISHED_NS, _PUBLISHED_PER_S = (12_000, 200_000), (260_000, 24_000)


class Figures(NamedTuple):
    """Of one round: packets that a socket got a second, and the mean time of each hop, ns."""

    per_s: float
    means_ns: dict[str, float]

    @property
    def to_tcp_ns(self) -> float:
        """From the driver to the function that netstacklat measures."""
        return sum(self.means_ns[hop] for hop in _TO_TCP)


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    found: dict[str, list[Figures]] = {_WITHOUT: [], _WITH: []}
    for order in turns([*found], rounds):
        for name in order:
            found[name].append(_measured(name))
    yield f"{_FLOWS} TCP flows between two namespaces; median of {rounds} rounds of {_LOAD_S} s (quartiles)\n"
    yield figures_table(found[_WITHOUT], found[_WITH]) + "\n"
    named = [slowest(one, other) for one, other in zip(found[_WITHOUT], found[_WITH], strict=True)]
    yield f"{named.count(_WANTED)} of {rounds} rounds name {_WANTED}, as wanted\n\n"


def rules() -> str:
    """Return a chain whose rules no packet meets, and each packet tries."""
    first = int(ipaddress.IPv4Address("10.200.0.0"))
    lines = "\n".join(f"add rule ip lab lab ip saddr {ipaddress.IPv4Address(first + n)} drop" for n in range(RULES))
    return f"table ip lab {{ chain lab {{ type filter hook input priority 0; }}; }}\n{lines}\n"


def slowest(without: Figures, with_rules: Figures) -> str:
    """Return the hop on which a packet spends most time more."""
    return max(_TO_TCP, key=lambda hop: with_rules.means_ns[hop] - without.means_ns[hop])


def figures_table(without: list[Figures], with_rules: list[Figures]) -> str:
    """Lay out what was measured, and what was published."""
    sides = (without, with_rules)
    rows = [[hop, *(_time(Spread.of(each.means_ns[hop] for each in side)) for side in sides)] for hop in _TO_TCP]
    times = [Spread.of(each.to_tcp_ns for each in side) for side in sides]
    rates = [Spread.of(each.per_s for each in side).median for side in sides]
    rows += [
        ["to TCP", *map(_time, times), _ratio([each.median for each in times])],
        ["  published", *map(fmt.time, _PUBLISHED_NS), _ratio(_PUBLISHED_NS)],
        ["packets/s", *map(fmt.rate, rates), _ratio(rates)],
        ["  published", *map(fmt.rate, _PUBLISHED_PER_S), _ratio(_PUBLISHED_PER_S)],
    ]
    return table(("mean", _WITHOUT, _WITH, "ratio"), [[*row, ""][:4] for row in rows])


def _time(spread: Spread) -> str:
    return f"{fmt.time(round(spread.median))} ({fmt.time(round(spread.low))}..{fmt.time(round(spread.high))})"


def _ratio(sides: Sequence[float]) -> str:
    return f"{sides[1] / sides[0]:.2f}"


def _measured(name: str) -> Figures:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab())
        if name == _WITH:
            lab.server.run(["nft", "-f", "-"], input=rules().encode(), check=True)
        for _ in range(_FLOWS):
            sink = stack.enter_context(Workload(lab.server, "tcp-sink", "--bind", SERVER_IPV4))
            stack.enter_context(Workload(lab.client, "tcp-send", SERVER_IPV4, sink.port))
        # Of the server alone: acknowledgements meet no rules.
        rx = stack.enter_context(RxCollector(RxOptions(namespaces=[lab.server.inode], protocol="tcp")))
        time.sleep(_SETTLE_S)
        rx.interval()
        time.sleep(_LOAD_S)
        snapshot = rx.interval()
    hops: dict[str, Histogram] = {row.hop: row.histogram for row in snapshot.hops}
    means = {hop: hops[hop].sum_ns / max(hops[hop].count, 1) for hop in _TO_TCP}
    return Figures(hops[_WANTED].count / snapshot.duration_s, means)
