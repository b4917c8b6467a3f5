# SPDX-License-Identifier: Apache-2.0
"""``clocks``: how far off the comparison of hosts' clocks is, where the truth is known to be 0.

The hosts are namespaces of this one. ptp4l runs after ours in each round, between the same two, under the same load;
trace-cmd's PTP is tried after both.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from bench import ptp4l, trace_cmd
from bench.clock_hosts import Hosts
from bench.measure import table
from hopscope.clock.change import turn
from hopscope.clock.network import join
from hopscope.clock.offline import smooth
from hopscope.clock.online import Follower
from hopscope.clock.pair import WINDOW_S
from hopscope.clock.pairs import Pairs
from hopscope.clock.samples import Direction, Samples
from hopscope.lab import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.clock.curve import Curve
    from hopscope.clock.pair import Pair
    from hopscope.clock.samples import Ns

ROUNDS: Final = 1
SECONDS: Final = 30.0
# A line through a few windows has no slope yet.
_BEGINNING: Final = 8
_OFFSET_NS: Final = 123
_DRIFT: Final = 20e-6
_FEWEST: Final = 2
_TRIAL_S: Final = 5.0
_WANTED: Final = {"online": 50, "offline": 30}


@dataclass
class Figures:
    """What one way to compare clocks came to.

    Attributes
    ----------
    errors_ns, bounds_ns
        Of each time that was converted.
    """

    errors_ns: list[int] = field(default_factory=list)
    bounds_ns: list[int] = field(default_factory=list)

    def add(self, curve: Curve, times_ns: Ns, truth_ns: Ns) -> None:
        """Convert times whose truth is known."""
        converted = curve.convert(times_ns)
        self.errors_ns += np.abs(converted.times_ns - truth_ns).tolist()
        self.bounds_ns += converted.bound_ns.tolist()

    @property
    def outside(self) -> int:
        """How many errors are larger than their bound."""
        return sum(error > bound for error, bound in zip(self.errors_ns, self.bounds_ns, strict=False))

    def row(self, name: str) -> list[str]:
        """Return the cells of a table."""
        if not self.errors_ns:
            return [name, "nothing", *[""] * 6]
        errors = np.array(self.errors_ns)
        cells = [f"{np.median(errors):.0f}", f"{np.quantile(errors, 0.95):.0f}", f"{errors.max()}"]
        if self.bounds_ns:
            cells += [f"{np.median(self.bounds_ns):.0f}", f"{max(self.bounds_ns)}", f"{self.outside} of {len(errors)}"]
        else:
            cells += ["none"] * 3
        return [name, *cells, str(_WANTED.get(name.partition(",")[0], ""))]


def run(rounds: int = ROUNDS, seconds: float = SECONDS) -> Iterator[str]:
    """Measure, and yield the report."""
    for number in range(rounds):
        for count in (_FEWEST, 4):
            with Hosts(count) as hosts:
                for load in ("idle", "loaded"):
                    with ExitStack() as stack:
                        if load == "loaded":
                            _load(stack, hosts, seconds)
                        rows, counts = _measured(hosts, seconds)
                    title = f"round {number + 1}: {count} hosts, {load}, {seconds:.0f} s"
                    yield f"{title}\n{errors_table(rows)}\n{counts}\n\n"
                if count == _FEWEST:
                    yield f"{trace_cmd.sync(hosts, _TRIAL_S)}\n\n"
    if ptp4l.missing():
        yield f"ptp4l was left out: there is no {ptp4l.missing()} here (Debian's linuxptp, util-linux)\n"


def errors_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out the errors and bounds of each way."""
    head = ("ns", "error, median", "95 %", "worst", "bound, median", "largest", "error over bound", "wanted, worst")
    return table(head, rows)


def _measured(hosts: Hosts, seconds: float) -> tuple[list[list[str]], str]:
    with Pairs(hosts.members) as pairs:
        parts, online = _follow(pairs, seconds)
        counts = _counts(pairs.pairs)
    every = [Samples.joined(part) for part in parts]
    rows = [online.row("online"), _offline(every).row("offline")]
    if len(hosts.links) == 1:
        rows += _injected(parts[0])
        if not ptp4l.missing():
            ends = [(hosts.namespaces[host], hosts.ifname(host, 1 - host)) for host in (0, 1)]
            rows.append(Figures([abs(offset) for offset in ptp4l.offsets_ns(ends, seconds)]).row("ptp4l -S"))
    return rows, counts


def _follow(pairs: Pairs, seconds: float) -> tuple[list[list[Samples]], Figures]:
    """Let all pairs probe each other; return their samples, and what was known at the time."""
    count = len(pairs.ends)
    parts: list[list[Samples]] = [[] for _ in range(count)]
    followers: dict[int, Follower] = {}
    figures = Figures()
    pairs.start()
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0 and (window := pairs.take(left_s)):
        samples = window.samples
        parts[window.pair].append(samples)
        if window.pair not in followers:
            followers[window.pair] = Follower(samples.first, samples.second)
        followers[window.pair].add(samples, turn(window.changes))
        # Each time that the last pair had a window, all have.
        if window.pair == count - 1 and min(map(len, parts)) > _BEGINNING:
            _look([followers[pair] for pair in range(count)], figures)
    return parts, figures


def _look(followers: Sequence[Follower], figures: Figures) -> None:
    """Convert a time of now, and of the next window."""
    curves = [follower.curve() for follower in followers]
    now_ns = min(int(curve.at_ns[-1]) for curve in curves)
    times_ns = now_ns + np.array([0, int(WINDOW_S * 1e9)])
    for curve in _joined(curves, times_ns):
        figures.add(curve, times_ns, times_ns)


def _offline(every: Sequence[Samples]) -> Figures:
    figures = Figures()
    curves = [smooth(samples) for samples in every]
    first = max(int(curve.at_ns[0]) for curve in curves)
    last = min(int(curve.at_ns[-1]) for curve in curves)
    times_ns = np.arange(first, last, int(WINDOW_S * 1e9) // 4)
    for curve in _joined(curves, times_ns):
        figures.add(curve, times_ns, times_ns)
    return figures


def _joined(curves: Sequence[Curve], times_ns: Ns) -> list[Curve]:
    if len(curves) == 1:
        return list(curves)
    return list(join(curves, curves[0].source, times_ns).curves.values())


def _injected(parts: Sequence[Samples]) -> list[list[str]]:
    """Compare again as if the second clock were ahead and faster."""
    start_ns = int(Samples.joined(parts).upper()[0][0])

    def ahead(times_ns: Ns) -> Ns:
        gained_ns: Ns = np.rint((times_ns - start_ns) * _DRIFT).astype(np.int64)
        return times_ns + _OFFSET_NS + gained_ns

    moved = [
        Samples(
            *(part.first, part.second),
            Direction(part.there.sent_ns, ahead(part.there.received_ns)),
            Direction(ahead(part.back.sent_ns), part.back.received_ns),
            part.bound_ns + 1,
        )
        for part in parts
    ]
    online, offline = Figures(), Figures()
    follower = Follower(parts[0].first, parts[0].second)
    for number, samples in enumerate(moved):
        follower.add(samples)
        if number >= _BEGINNING:
            curve = follower.curve()
            at_ns = curve.at_ns[-1] + np.array([0, int(WINDOW_S * 1e9)])
            online.add(curve, at_ns, ahead(at_ns))
    curve = smooth(Samples.joined(moved))
    offline.add(curve, curve.at_ns, ahead(curve.at_ns))
    off_ppb = np.abs(curve.rate - _DRIFT).max() * 1e9
    injected = f"{_OFFSET_NS} ns + {_DRIFT * 1e6:.0f} ppm"
    return [online.row(f"online, {injected}"), offline.row(f"offline, {injected} (drift within {off_ppb:.1f} ppb)")]


def _load(stack: ExitStack, hosts: Hosts, seconds: float) -> None:
    """Fill the first link with a TCP stream and with datagrams, for as long as all takes."""
    first, second = hosts.links[0]
    address = hosts.address(second)
    limit = ("--limit", 3 * seconds + 30)
    for kind, rate in (("tcp", ()), ("udp", ("--rate", 20_000))):
        sink = stack.enter_context(Workload(hosts.namespaces[second], f"{kind}-sink", "--bind", address, *limit))
        stack.enter_context(Workload(hosts.namespaces[first], f"{kind}-send", address, sink.port, *rate, *limit))


def _counts(pairs: Sequence[Pair]) -> str:
    refused = sum(sum(pair.refused.values()) for pair in pairs)
    lost, clock_set = (sum(getattr(pair, name) for pair in pairs) for name in ("lost", "windows_set"))
    return f"packets refused: {refused}, stamps lost: {lost}, answers in which the wall clock had been set: {clock_set}"
