# SPDX-License-Identifier: Apache-2.0
"""Keeps what pairs of hosts have stamped, and makes reports of it."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.clock.change import clock_changes, turn
from hopscope.clock.domain import Clock, ClockDomain
from hopscope.clock.network import join
from hopscope.clock.of_host import phc, walls
from hopscope.clock.offline import smooth
from hopscope.clock.online import Follower
from hopscope.clock.samples import Samples
from hopscope.errors import UsageError
from hopscope.verbs.clock import report as rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.clock.change import Change, Look
    from hopscope.clock.curve import Curve, Ns
    from hopscope.clock.pair import Pair
    from hopscope.clock.pairs import Pairs, Window

# An hour of windows.
KEPT: Final = 7200


@dataclass
class _Account:
    """What one pair has brought, and what of it was reported."""

    follower: Follower
    kept: deque[Samples] = field(default_factory=lambda: deque(maxlen=KEPT))
    fresh: list[Samples] = field(default_factory=list)
    changes: tuple[list[Change], list[Change]] = field(default_factory=lambda: ([], []))
    breaks: int = 0


class ClockBook:
    """Takes windows, and makes reports.

    Parameters
    ----------
    pairs
        What is probed.
    daemons
        What runs on each host that sets clocks.
    """

    def __init__(self, pairs: Pairs, daemons: Sequence[Sequence[str]] = ()) -> None:
        self._pairs = pairs
        self._daemons = daemons or [()] * len(pairs.hosts)
        self._accounts = {
            number: _Account(Follower(*(ClockDomain(pairs.hosts[host].name) for host in ends)))
            for number, ends in enumerate(pairs.ends)
        }
        self._looks: dict[int, Look] = {}
        self._before: dict[int, Look] = {}
        self._noted_ns: dict[int, int] = {}
        self._changes: deque[rows.ChangeRow] = deque(maxlen=KEPT)
        self._fresh_changes: list[rows.ChangeRow] = []
        self._counted: dict[int, dict[str, int]] = {}
        self._began_s = self._reported_s = time.monotonic()

    def add(self, window: Window) -> None:
        """Take a window."""
        account = self._accounts[window.pair]
        account.follower.add(window.samples, turn(window.changes))
        account.kept.append(window.samples)
        account.fresh.append(window.samples)
        for host, kept, change in zip(self._pairs.ends[window.pair], account.changes, window.changes, strict=True):
            if change is not None:
                kept.append(change)
                self._note(host, change)
        for host, look in zip(self._pairs.ends[window.pair], window.looks, strict=True):
            if host in self._looks:
                self._before[host] = self._looks[host]
            self._looks[host] = look

    def _note(self, host: int, change: Change) -> None:
        # All pairs of a host see what was done to it.
        if change.until_ns <= self._noted_ns.get(host, 0):
            return
        if change.from_ns >= self._noted_ns.get(host, 0):
            row = rows.ChangeRow(self._pairs.hosts[host].name, change.rate, change.step_ns)
            self._fresh_changes.append(row)
            self._changes.append(row)
        self._noted_ns[host] = change.until_ns

    def interval(self) -> rows.ClockReport:
        """Return what is known now, and what came since the last call."""
        curves = {number: _curve(account) for number, account in self._accounts.items()}
        fresh = {number: account.fresh for number, account in self._accounts.items()}
        now_s = time.monotonic()
        report = self._report("interval", now_s - self._reported_s, curves, fresh, self._since())
        self._reported_s, self._fresh_changes = now_s, []
        for account in self._accounts.values():
            account.fresh = []
            account.breaks = account.follower.breaks
        return report

    def total(self) -> rows.ClockReport:
        """Return what can be said of all that came, now that it is all there."""
        every = {number: list(account.kept) for number, account in self._accounts.items()}
        curves = {number: _smoothed(account) for number, account in self._accounts.items()}
        for account in self._accounts.values():
            account.breaks = 0
        return self._report("total", time.monotonic() - self._began_s, curves, every, self._all())

    def _report(  # what a report is of
        self,
        kind: str,
        duration_s: float,
        curves: Mapping[int, Curve | None],
        samples: Mapping[int, list[Samples]],
        counts: Mapping[int, Mapping[str, int]],
    ) -> rows.ClockReport:
        pairs = [self._pair(number, curves[number], samples[number], counts[number]) for number in self._accounts]
        notes, changes = ([], list(self._changes)) if kind == "total" else (self._pairs.silent(), self._fresh_changes)
        known = pairs, self._hosts(curves), self._loops(curves), changes
        return rows.ClockReport(kind, time.time_ns(), duration_s, *known, notes)

    def _pair(
        self, number: int, curve: Curve | None, samples: list[Samples], counts: Mapping[str, int]
    ) -> rows.PairRow:
        first, second = (self._pairs.hosts[host].name for host in self._pairs.ends[number])
        every = Samples.joined(samples) if samples else None
        there, back = _delays(curve, every) if curve and every else (None, None)
        account = self._accounts[number]
        changes = account.follower.breaks - account.breaks
        plain = ("probes", "answered", "lost")
        return rows.PairRow(
            first,
            second,
            self._state(number, curve, every, changes),
            self._pairs.failed.get(number, ""),
            _now(curve) if curve else None,
            there,
            back,
            probes=counts["probes"],
            answered=counts["answered"],
            lost=counts["lost"],
            refused={name: count for name, count in counts.items() if name not in plain and count},
            changes=changes,
            stamps=_stamps(samples),
            history=_history(curve) if curve else None,
        )

    def _state(self, number: int, curve: Curve | None, samples: Samples | None, changes: int) -> str:
        if number in self._pairs.failed:
            return rows.FAILED
        if samples is None or not (len(samples.there) or len(samples.back)):
            return rows.WAITING if curve is None and not self._pairs.silent() else rows.SILENT
        if not (len(samples.there) and len(samples.back)):
            return rows.ONE_WAY
        if changes:
            return rows.CHANGED
        return rows.WAITING if curve is None else rows.GOOD

    def _hosts(self, curves: Mapping[int, Curve | None]) -> list[rows.HostRow]:
        ahead = self._walls([curve for curve in curves.values() if curve is not None])
        return [self._host(number, ahead) for number in range(len(self._pairs.hosts))]

    def _host(self, number: int, every: Mapping[ClockDomain, tuple[int, int]]) -> rows.HostRow:
        host, look = self._pairs.hosts[number], self._looks.get(number)
        ahead = every.get(ClockDomain(host.name, Clock.REALTIME))
        phcs = [(domain.device, *at) for domain, at in every.items() if domain.host == host.name and domain.device]
        said = look.adjustment if look else None
        return rows.HostRow(
            host.name,
            host.address,
            realtime_ns=ahead and ahead[0],
            realtime_bound_ns=ahead and ahead[1],
            synchronized=bool(said and said.synchronized),
            max_error_ns=said.max_error_ns if said and said.synchronized else None,
            tai_offset_s=said.tai_offset_s if said else 0,
            daemons=self._daemons[number],
            phcs=[rows.PhcRow(*phc) for phc in sorted(phcs)],
        )

    def _walls(self, curves: Sequence[Curve]) -> dict[ClockDomain, tuple[int, int]]:
        """Return by how much each host's other clocks are ahead of the first one's CLOCK_REALTIME, with the bound."""
        first = self._pairs.hosts[0].name
        look = self._looks.get(0)
        if look is None:
            return {}
        reached = _connected(first, curves)
        walls_of = [
            curve
            for number, host in enumerate(self._pairs.hosts)
            if host.name in reached and number in self._looks
            for curve in (*walls(host.name, self._looks[number]), *self._phcs(number))
        ]
        own = ClockDomain(first, Clock.REALTIME)
        at_ns = np.array([look.at_ns - look.to_monotonic.offset_ns])
        try:
            network = join([*(curve for curve in curves if curve.source.host in reached), *walls_of], own, at_ns)
        except UsageError:  # they contradict each other, which loops show
            return {own: (0, 0)}
        found = {own: (0, 0)}
        for domain, curve in network.curves.items():
            converted = curve.convert(at_ns)
            found[domain] = int(converted.times_ns[0] - at_ns[0]), int(converted.bound_ns[0])
        return found

    def _phcs(self, host: int) -> list[Curve]:
        before, now = self._before.get(host), self._looks[host]
        if before is None:
            return []
        return [
            phc(self._pairs.hosts[host].name, name, before.phcs[name], reading)
            for name, reading in now.phcs.items()
            if name in before.phcs and reading.monotonic_ns > before.phcs[name].monotonic_ns
        ]

    def _loops(self, curves: Mapping[int, Curve | None]) -> list[rows.Loop]:
        """Return what is left of each way around three hosts."""
        of = dict(zip(self._pairs.ends, (curves[number] for number in self._accounts), strict=True))
        found = []
        for one, two, three in itertools.combinations(range(len(self._pairs.hosts)), 3):
            sides = of[one, two], of[two, three], of[one, three]
            if all(side is not None for side in sides):
                a, b, c = (side for side in sides if side is not None)
                at_ns = np.array([min(int(a.at_ns[-1]), int(c.at_ns[-1]))])
                there = a.convert(at_ns)
                around, straight = b.convert(there.times_ns), c.convert(at_ns)
                bound_ns = int(there.bound_ns[0] + around.bound_ns[0] + straight.bound_ns[0])
                names = self._pairs.hosts[one].name, self._pairs.hosts[two].name, self._pairs.hosts[three].name
                found.append(rows.Loop(names, int(around.times_ns[0] - straight.times_ns[0]), bound_ns))
        return found

    def _all(self) -> dict[int, dict[str, int]]:
        return {number: _counts(pair) for number, pair in enumerate(self._pairs.pairs)}

    def _since(self) -> dict[int, dict[str, int]]:
        now = self._all()
        before, self._counted = self._counted, now
        return {
            number: {name: count - before.get(number, {}).get(name, 0) for name, count in counts.items()}
            for number, counts in now.items()
        }


def _counts(pair: Pair) -> dict[str, int]:
    return {"probes": pair.probes, "answered": pair.answered, "lost": pair.lost, **Counter(pair.refused)}


def _stamps(samples: Sequence[Samples]) -> str:
    kinds = {part.by_nics for part in samples if len(part.there) or len(part.back)}
    if len(kinds) > 1:
        return rows.MIXED
    return "".join(rows.HARDWARE if by_nics else rows.SOFTWARE for by_nics in kinds)


def _curve(account: _Account) -> Curve | None:
    try:
        return account.follower.curve()
    except UsageError:
        return None


def _smoothed(account: _Account) -> Curve | None:
    if not account.kept:
        return None
    samples = Samples.joined(account.kept)
    try:
        return smooth(samples, changes=clock_changes(samples, *account.changes))
    except UsageError:
        return None


def _now(curve: Curve) -> rows.Comparison:
    at_ns = curve.at_ns[-1:]
    converted = curve.convert(at_ns)
    rate, low, high = curve.rate[-1], curve.rate_low[-1], curve.rate_high[-1]
    offset_ns = int(converted.times_ns[0] - at_ns[0])
    return rows.Comparison(offset_ns, int(converted.bound_ns[0]), float(rate), float(max(high - rate, rate - low)))


def _history(curve: Curve) -> rows.History:
    converted = curve.convert(curve.at_ns)
    return rows.History(curve.at_ns, converted.times_ns - curve.at_ns, converted.bound_ns.astype(np.float64))


def _delays(curve: Curve, samples: Samples) -> tuple[rows.Delays | None, rows.Delays | None]:
    there, back = samples.there, samples.back
    return (
        _of_delays(there.received_ns - curve.convert(there.sent_ns).times_ns),
        _of_delays(curve.convert(back.received_ns).times_ns - back.sent_ns),
    )


def _of_delays(delays_ns: Ns) -> rows.Delays | None:
    return rows.Delays(int(delays_ns.min()), int(np.median(delays_ns))) if len(delays_ns) else None


def _connected(first: str, curves: Sequence[Curve]) -> set[str]:
    """Return the hosts that some comparisons lead to."""
    found = {first}
    while (
        more := {
            end.host
            for curve in curves
            for end in (curve.source, curve.target)
            if {curve.source.host, curve.target.host} & found
        }
        - found
    ):
        found |= more
    return found
