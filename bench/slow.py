# SPDX-License-Identifier: Apache-2.0
"""``slow``: which hop tells a slow virtual machine from a fast one, where it is known what makes it slow.

Requests and replies between two namespaces, as between two virtual machines on one host, up to 200 a second: as they
are; with the client behind a link of 4 Mbit/s (TBF); and with a server that has 1 ms of CPU time in 250 ms (a quota of
its cgroup). `tx` and `rx` measure each hop of them. The hop on which a message spends most time more than on the fast
ones is the one that is named; beside it stands how far its cumulative distributions are apart.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from bench.measure import table, turns
from hopscope.lab import Lab, Tbf, Workload
from hopscope.lab.veth import SERVER_IPV4
from hopscope.model.cdf import distance
from hopscope.term import format as fmt
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
from tests.lab.causes.world import cpu_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.model.histogram import Histogram
    from hopscope.model.snapshot import Snapshot

    Hops = Mapping[str, Histogram]

ROUNDS: Final = 4
_MESSAGES: Final = 300
_BYTES: Final = 4096
_LINK: Final = Tbf(4_000_000)
_QUOTA_US, _PERIOD_US = 1000, 250_000
_FAST: Final = "fast"
# What makes it slow → the hop that it must show at.
_SLOW: Final = {"4 Mbit/s": "tx.qdisc", "CPU quota": "rx.tcp_runnable"}
# Sums and parts of others, and what ends on the other host: there, it has hops of its own.
_SUMS: Final = ("total", "_wake", "tx.host", "tx.ack", "rx.softirq", "rx.napi", "rx.nic")
_PARTS: Final = ("tx.tcp_", "tx.sched_", "tx.udp", "rx.udp")


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    found: dict[str, list[Hops]] = {name: [] for name in (_FAST, *_SLOW)}
    for order in turns([*found], rounds):
        for name in order:
            found[name].append(_measured(name))
    fast = _added(found[_FAST])
    for name, wanted in _SLOW.items():
        slow = _added(found[name])
        yield f"{name}: {_MESSAGES * rounds:,} requests and their replies\n"
        yield hops_table(fast, slow) + "\n"
        named = [slowest(one, other) for one, other in zip(found[_FAST], found[name], strict=True)]
        yield f"named: {slowest(fast, slow)}; {named.count(wanted)} of {rounds} rounds name {wanted}, as wanted\n\n"


def slowest(fast: Hops, slow: Hops) -> str:
    """Return the hop on which a message spends most time more."""
    return max(_rises_ns(fast, slow).items(), key=lambda item: item[1])[0]


def hops_table(fast: Hops, slow: Hops) -> str:
    """Lay out the hops on which a message spends more time, the one with the most first."""
    rows = []
    for hop, rise_ns in sorted(_rises_ns(fast, slow).items(), key=lambda item: -item[1])[:5]:
        apart = distance(fast[hop], slow[hop])
        figures = [fmt.time(each[hop].percentile(q)) for q in (50, 99) for each in (fast, slow)]
        rows.append([hop, fmt.time(round(rise_ns)), *figures, f"{apart.at_least:.2f}" if apart else fmt.MISSING])
    head = ("hop", "more a message", "p50 fast", "slow", "p99 fast", "slow", "distance of CDFs")
    return table(head, rows)


def _rises_ns(fast: Hops, slow: Hops) -> dict[str, float]:
    """Return hop → how much more time a message spends there; not every message meets every hop."""
    return {hop: (slow[hop].sum_ns - fast[hop].sum_ns) / _messages(slow) for hop in fast}


def _messages(hops: Hops) -> int:
    return max(histogram.count for histogram in hops.values()) or 1


def _measured(name: str) -> Hops:
    """Return hop → times of all requests and replies of one round."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(tbf=_LINK if name == "4 Mbit/s" else None))
        limits = []
        if name == "CPU quota":
            limits = ["--cgroup", stack.enter_context(cpu_group("hopscope-bench-slow", _QUOTA_US, _PERIOD_US))]
        sizes = ("--size", _BYTES, "--reply-size", _BYTES)
        echo = stack.enter_context(Workload(lab.server, "tcp-echo", "--bind", SERVER_IPV4, *sizes, *limits))
        inodes = [lab.client.inode, lab.server.inode]
        tx = stack.enter_context(TxCollector(TxOptions(namespaces=inodes, flow_hooks=False, protocol="tcp")))
        rx = stack.enter_context(RxCollector(RxOptions(namespaces=inodes, protocol="tcp")))
        asks = ("tcp-rr", SERVER_IPV4, echo.port, *sizes, "--rate", 200, "--count", _MESSAGES)
        with Workload(lab.client, *asks) as client:
            client.result()
        return _hops(tx.interval()) | _hops(rx.interval())


def _hops(snapshot: Snapshot) -> dict[str, Histogram]:
    return {
        row.hop: row.histogram
        for row in snapshot.hops
        if not row.hop.endswith(_SUMS) and not row.hop.startswith(_PARTS)
    }


def _added(rounds: list[Hops]) -> Hops:
    """Return the times of all rounds together."""
    return {hop: sum((each[hop] for each in rounds[1:]), rounds[0][hop]) for hop in rounds[0]}
