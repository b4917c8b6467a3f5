# SPDX-License-Identifier: Apache-2.0
"""Two clocks whose difference is known at each moment, and packets between them whose delays nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hopscope.clock.domain import ClockDomain
from hopscope.clock.samples import Direction, Samples

SECOND = 1_000_000_000
FIRST, SECOND_HOST = ClockDomain("one"), ClockDomain("two")
START_NS = 40_000 * SECOND
RESOLUTION_NS = 10

Ns = NDArray[np.int64]
Ahead = Callable[[Ns], Ns]


@dataclass(frozen=True)
class Network:
    """How packets fare: least delays and mean queues of either direction, the share that is lost."""

    least_ns: tuple[int, int] = (500, 500)
    queue_ns: tuple[float, float] = (300.0, 300.0)
    lost: float = 0.0
    packets: int = 15


def ahead(offset_ns: int, drift: float, steps: tuple[tuple[int, int], ...] = (), bend: float = 0.0) -> Ahead:
    """Return by how much the second clock is ahead at each time of the first."""

    def of(times_ns: Ns) -> Ns:
        since = times_ns - START_NS
        value = offset_ns + np.rint(since * drift + bend / 2 * (since / SECOND) ** 2 * SECOND).astype(np.int64)
        for at_ns, step_ns in steps:
            value += np.where(times_ns >= at_ns, step_ns, 0)
        return value

    return of


def windows(truth: Ahead, count: int, network: Network, seed: int) -> list[Samples]:
    """Return what both hosts stamp, in windows of half a second."""
    rng = np.random.default_rng(seed)
    return [window(truth, START_NS + number * SECOND // 2, network, rng) for number in range(count)]


def window(truth: Ahead, start_ns: int, network: Network, rng: np.random.Generator) -> Samples:
    left = [start_ns + np.sort(rng.integers(0, 3_000_000, network.packets)) for _ in range(2)]
    came = [
        at + least + rng.exponential(queue, len(at)).astype(np.int64)
        for at, least, queue in zip(left, network.least_ns, network.queue_ns, strict=True)
    ]
    kept = [rng.random(network.packets) >= network.lost for _ in range(2)]
    there = Direction(cut(left[0][kept[0]]), cut(on_second(truth, came[0][kept[0]])))
    back = Direction(cut(on_second(truth, left[1][kept[1]])), cut(came[1][kept[1]]))
    return Samples(FIRST, SECOND_HOST, there, back, RESOLUTION_NS)


def on_second(truth: Ahead, times_ns: Ns) -> Ns:
    return times_ns + truth(times_ns)


def cut(times_ns: Ns) -> Ns:
    return times_ns // RESOLUTION_NS * RESOLUTION_NS
