# SPDX-License-Identifier: Apache-2.0
"""More than two hosts: every pair's own comparison, made to agree.

What is most likely comes from least squares over all pairs, each as important as its bound is small. What is possible
comes from the pairs' bounds alone: each says how far two clocks are apart at most, and so does each way around through
others (difference constraints, solved by shortest paths; Floyd 1962). A loop of pairs whose bounds exclude each other
shows that one of them is wrong: then nothing is said of that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hopscope.clock.curve import Curve
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.clock.curve import Floats, Ns
    from hopscope.clock.domain import ClockDomain


@dataclass(frozen=True, slots=True)
class Network:
    """All clocks against one of them.

    Attributes
    ----------
    curves
        By domain, from the reference to it; without the reference itself.
    residuals_ns
        float64, (pairs, times): by how much each pair's own value is off from the joint one. Pairs that are part of no
        loop have 0.
    contradictory
        bool, (times,): the pairs' bounds exclude each other. The curves have no knot there.
    """

    curves: dict[ClockDomain, Curve]
    residuals_ns: Floats
    contradictory: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Reached:
    """Times of a clock, about, and how it runs against the reference."""

    times_ns: Ns
    rates: tuple[Floats, Floats, Floats]


def join(pairs: Sequence[Curve], reference: ClockDomain, times_ns: Ns) -> Network:
    """Put all clocks on the axis of one of them.

    Parameters
    ----------
    pairs
        Any, in any direction.
    reference
        The clock of the axis.
    times_ns
        int64, ascending: when, by that clock. Such as one in each window.

    Raises
    ------
    UsageError
        Some clocks were never compared with the others; or all that is known is contradictory.
    """
    reached = _reach(pairs, reference, times_ns)
    index = {domain: number for number, domain in enumerate(reached)}
    ends = np.array([(index[pair.source], index[pair.target]) for pair in pairs])
    value, low, high = _differences(pairs, reached)
    joint = _least_squares(ends, value, high - low, len(reached))
    least, most, contradictory = _possible(ends, low, high, len(reached))
    if contradictory.all():
        raise UsageError("The comparisons of the clocks contradict each other", "Look at each pair by itself")
    residuals = value - (joint[ends[:, 1]] - joint[ends[:, 0]])
    breaks = np.any([pair.breaks_between(reached[pair.source].times_ns) for pair in pairs], axis=0)
    wander = sum(pair.wander for pair in pairs)
    kept = np.flatnonzero(~contradictory)
    broken = np.array([breaks[a:b].any() or b - a > 1 for a, b in zip(kept, [*kept[1:], kept[-1]], strict=True)])
    curves = {}
    for domain, number in index.items():
        if domain != reference:
            offset_ns = reached[domain].times_ns - times_ns
            base_ns = int(offset_ns[0])
            about = (offset_ns - base_ns).astype(np.float64)
            found = np.clip(joint[number], least[number], most[number])
            value, low, high = ((about + row)[kept] for row in (found, least[number], most[number]))
            rate, rate_low, rate_high = (row[kept] for row in reached[domain].rates)
            at_ns = times_ns[kept]
            curves[domain] = Curve(
                *(reference, domain, base_ns, at_ns, value, low, high), rate, rate_low, rate_high, broken, wander
            )
    return Network(curves, residuals, contradictory)


def _reach(pairs: Sequence[Curve], reference: ClockDomain, times_ns: Ns) -> dict[ClockDomain, _Reached]:
    """Return about what each clock shows at the reference's times, by the shortest way."""
    still = (np.zeros(len(times_ns)),) * 3
    reached = {reference: _Reached(times_ns, still)}
    both_ways = [*pairs, *(pair.inverted() for pair in pairs)]
    waiting = [reference]
    while waiting:
        here = waiting.pop(0)
        for pair in both_ways:
            if pair.source == here and pair.target not in reached:
                at = reached[here]
                most, low, high = (
                    (1 + a) * (1 + b) - 1 for a, b in zip(at.rates, pair.rates(at.times_ns), strict=True)
                )
                reached[pair.target] = _Reached(pair.convert(at.times_ns).times_ns, (most, low, high))
                waiting.append(pair.target)
    missing = {end for pair in pairs for end in (pair.source, pair.target)} - reached.keys()
    if missing:
        named = ", ".join(sorted(str(domain) for domain in missing))
        raise UsageError(f"No comparison leads from {reference} to {named}")
    return reached


def _differences(pairs: Sequence[Curve], reached: dict[ClockDomain, _Reached]) -> tuple[Floats, Floats, Floats]:
    """Return what each pair says about how far what was reached is off: (pairs, times) of value, low and high."""
    rows = []
    for pair in pairs:
        at, there = reached[pair.source].times_ns, reached[pair.target].times_ns
        about = (there - at - pair.base_ns).astype(np.float64)
        rows.append([row - about for row in pair.offsets(at)])
    value, low, high = np.array(rows).transpose(1, 0, 2)
    return value, low - 0.5, high + 0.5


def _least_squares(ends: NDArray[np.intp], value: Floats, width: Floats, count: int) -> Floats:
    """Return (clocks, times), the reference's row being 0."""
    design = np.zeros((len(ends), count))
    rows = np.arange(len(ends))
    design[rows, ends[:, 1]] = 1
    design[rows, ends[:, 0]] = -1
    design = design[:, 1:]
    weight = 1 / np.maximum(width, 1.0) ** 2
    normal = np.einsum("pi,pt,pj->tij", design, weight, design)
    right = np.einsum("pi,pt,pt->ti", design, weight, value)
    found = np.linalg.solve(normal, right[:, :, None])[:, :, 0].T
    return np.concatenate([np.zeros((1, value.shape[1])), found])


def _possible(
    ends: NDArray[np.intp], low: Floats, high: Floats, count: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the least and the most of each clock, (clocks, times), and where there is nothing between."""
    apart = np.full((count, count, low.shape[1]), np.inf)
    apart[np.arange(count), np.arange(count)] = 0
    for (source, target), least, most in zip(ends, low, high, strict=True):
        apart[source, target] = np.minimum(apart[source, target], most)
        apart[target, source] = np.minimum(apart[target, source], -least)
    for via in range(count):
        apart = np.minimum(apart, apart[:, via, None] + apart[None, via])
    contradictory: NDArray[np.bool_] = np.any(apart[np.arange(count), np.arange(count)] < 0, axis=0)
    return -apart[:, 0], apart[0], contradictory
