# SPDX-License-Identifier: Apache-2.0
"""The common time axis of joined hosts: CLOCK_MONOTONIC of the first host, and the offsets of the other clocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.clock.change import clock_changes
from hopscope.clock.network import join
from hopscope.clock.offline import smooth
from hopscope.clock.samples import Direction, Samples
from hopscope.errors import UsageError
from hopscope.term.format import noun_of
from hopscope.trace.clock_bounds import SLOT_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.clock.change import Change
    from hopscope.clock.curve import Curve
    from hopscope.clock.network import Network
    from hopscope.trace.join.sources import Source

    Ns = NDArray[np.int64]
    Ends = tuple[int, int]
    Changes = tuple[list[Change], list[Change]]

# Sampling points of the bound within a half second: in between, it changes by less than the margin that is added.
_WITHIN: Final = np.linspace(0, SLOT_NS, 9).astype(np.int64)
_MORE_NS: Final = 2


@dataclass(frozen=True, slots=True)
class Axis:
    """The conversion of a host's times to the axis.

    Attributes
    ----------
    at_ns
        int64, ascending in steps of half a second: times of the axis.
    offset_ns
        int64: how far the host's clock is ahead at these times; interpolated linearly.
    bound_ns
        int64: maximum error of times until the next entry; the last equals the one before.
    """

    at_ns: Ns
    offset_ns: Ns
    bound_ns: Ns

    def times_ns(self, host_ns: Ns) -> Ns:
        """Return times of the axis for times of the host, preserving their order."""
        if not self.offset_ns.any():
            return host_ns
        knots = self.at_ns + self.offset_ns
        left = np.clip(np.searchsorted(knots, host_ns, side="right") - 1, 0, len(knots) - 2)
        slope = np.diff(self.offset_ns) / np.diff(knots)
        more = np.rint((host_ns - knots[left]) * slope[left]).astype(np.int64)
        return host_ns - self.offset_ns[left] - more

    def rows(self, host: int) -> dict[str, NDArray[Any]]:
        """Return the rows of the table ``clocks``."""
        return {
            "host": np.full(len(self.at_ns), host, np.int16),
            "time_ns": self.at_ns,
            "offset_ns": self.offset_ns,
            "low_ns": self.offset_ns - self.bound_ns,
            "high_ns": self.offset_ns + self.bound_ns,
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """Two hosts whose clocks were compared.

    Attributes
    ----------
    first, second
        Numbers of the hosts.
    probes, packets
        Numbers of probes, and of packets of applications, in each direction.
    breaks
        Number of (possible) changes of time or rate of one of the clocks, where the bound is larger.
    contradictory
        Contradictory windows, which were discarded.
    refused
        Packets of applications that contradict the probes, which were discarded.
    residual_ns
        Deviation of the pair from the combination of all pairs: median and maximum. 0 if no other pairs connect
        the two hosts.
    """

    first: int
    second: int
    probes: tuple[int, int]
    packets: tuple[int, int]
    breaks: int
    contradictory: int
    refused: int
    residual_ns: tuple[float, float] = (0.0, 0.0)


def axes(
    sources: Sequence[Source],
    probes: Mapping[Ends, Samples],
    packets: Mapping[Ends, Samples],
    changes: Mapping[Ends, Changes],
) -> tuple[list[Axis], list[Compared]]:
    """Return the axis of each host, and the pairs of clocks that were compared.

    Parameters
    ----------
    sources
        The hosts.
    probes, packets
        Pair of host numbers (the lower first) → probes, or packets of applications.
    changes
        Pair → known changes of the clocks of the first and the second host.

    Raises
    ------
    UsageError
        Some clocks cannot be compared with the first.
    """
    found = {
        ends: _curve(ends, probes.get(ends), packets.get(ends), changes.get(ends, ([], [])))
        for ends in sorted(probes.keys() | packets.keys())
    }
    pairs = {ends: each for ends, each in found.items() if each is not None}
    curves = {ends: curve for ends, (curve, _) in pairs.items()}
    _all_reached(sources, curves)
    if not curves:
        return [_still(_grid(sources, None))], []
    reference = sources[0].domain
    rough = join(list(curves.values()), reference, _knots(sources, curves)[:1])
    grid = _grid(sources, rough)
    network = join(list(curves.values()), reference, grid)
    residuals = np.abs(network.residuals_ns)
    compared = [
        replace(each, residual_ns=(float(np.median(off)), float(off.max())))
        for (_, each), off in zip(pairs.values(), residuals, strict=True)
    ]
    return [
        _still(grid),
        *(_axis(network.curves[source.domain], grid, source.name) for source in sources[1:]),
    ], compared


def _curve(
    ends: Ends, probes: Samples | None, packets: Samples | None, changes: Changes
) -> tuple[Curve, Compared] | None:
    """Compare two clocks; None if there are no packets in one of the directions.

    The estimate is derived from the probes, if there are any, because they are symmetric and packets of applications
    are not. The bound is derived from all packets.
    """
    likely = _smooth(probes, changes) if probes else None
    refused = 0
    if likely and packets:
        packets, refused = _believed(packets, likely)
    every = Samples.joined([each for each in (probes, packets) if each])
    curve = _smooth(every, changes)
    if curve is None:
        return None
    if likely:
        value, _, _ = likely.offsets(curve.at_ns)
        value += likely.base_ns - curve.base_ns
        curve = replace(curve, value_ns=np.clip(value, curve.low_ns, curve.high_ns))
    breaks = int(curve.breaks[:-1].sum())
    return curve, Compared(*ends, _counts(probes), _counts(packets), breaks, curve.contradictory, refused)


def _believed(packets: Samples, likely: Curve) -> tuple[Samples, int]:
    """Return the packets that are consistent with the probes, and the number of those that are not."""
    at_ns, most = packets.upper()
    there = most - likely.base_ns >= likely.offsets(at_ns)[1]
    at_ns, least = packets.lower()
    back = least - likely.base_ns <= likely.offsets(at_ns)[2]
    kept = replace(packets, there=_some(packets.there, there), back=_some(packets.back, back))
    return kept, int((~there).sum() + (~back).sum())


def _some(direction: Direction, kept: NDArray[np.bool_]) -> Direction:
    return Direction(direction.sent_ns[kept], direction.received_ns[kept])


def _counts(samples: Samples | None) -> tuple[int, int]:
    return (len(samples.there), len(samples.back)) if samples else (0, 0)


def _smooth(samples: Samples, changes: Changes) -> Curve | None:
    try:
        return smooth(samples, changes=clock_changes(samples, *changes))
    except UsageError:  # packets in one direction only
        return None


def _all_reached(sources: Sequence[Source], curves: Mapping[Ends, Curve]) -> None:
    reached = {0}
    while more := {end for ends in curves if reached & set(ends) for end in ends} - reached:
        reached |= more
    if missing := [source.name for source in sources if source.number not in reached]:
        raise UsageError(
            f"The {noun_of(len(missing), 'clock')} of {', '.join(missing)} cannot be compared with the clock "
            f"of {sources[0].name}: there are no clock probes, and no packets in both directions that both "
            "hosts time-stamped",
            f"Record with `hopscope record --host`, or join without this host: `hopscope join --without {missing[0]}`",
        )


def _knots(sources: Sequence[Source], curves: Mapping[Ends, Curve]) -> Ns:
    """Return the times of the first host's clock at which one of its pairs was compared."""
    for (first, second), curve in curves.items():
        if first == 0:
            return curve.at_ns
        if second == 0:
            return curve.inverted().at_ns
    return np.array(sources[0].span_ns, np.int64)


def _grid(sources: Sequence[Source], rough: Network | None) -> Ns:
    """Return the half seconds in which anything was recorded; rough offsets are sufficient for this."""
    spans = [sources[0].span_ns]
    for source in sources[1:]:
        curve = rough.curves[source.domain].inverted() if rough else None
        if curve:
            first, last = curve.convert(np.array(source.span_ns, np.int64)).times_ns.tolist()
            spans.append((first, last))
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    return np.arange(first // SLOT_NS - 1, last // SLOT_NS + 3, dtype=np.int64) * SLOT_NS


def _still(grid: Ns) -> Axis:
    """Return the axis of the first host, whose clock it is."""
    return Axis(grid, np.zeros(len(grid), np.int64), np.zeros(len(grid), np.int64))


def _axis(curve: Curve, grid: Ns, name: str) -> Axis:
    value, _, _ = curve.offsets(grid)
    offset_ns = curve.base_ns + np.rint(value).astype(np.int64)
    if not (np.diff(grid + offset_ns) > 0).all():
        raise UsageError(
            f"The clock of {name} was set back, so its times are ambiguous",
            f"Join without this host: `hopscope join --without {name}`",
        )
    within = grid[:-1, None] + _WITHIN[None, :]
    line = offset_ns[:-1, None] + np.diff(offset_ns)[:, None] * (_WITHIN / SLOT_NS)[None, :] - curve.base_ns
    _, low, high = (row.reshape(within.shape) for row in curve.offsets(within.ravel()))
    bound = np.maximum(high - line, line - low).max(axis=1)
    bound_ns = np.ceil(bound).astype(np.int64) + _MORE_NS
    return Axis(grid, offset_ns, np.append(bound_ns, bound_ns[-1]))
