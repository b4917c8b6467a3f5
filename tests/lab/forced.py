# SPDX-License-Identifier: Apache-2.0
"""Which ways to attach are forced in the same run: to load the programs takes long under emulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hopscope.probes.point import AttachMethod, Point
    from hopscope.probes.resolve import Resolver

    # Point name → the way that is forced, or that is attached.
    Ways = Mapping[str, str]


def granted_ways(points: Iterable[Point], resolver: Resolver) -> dict[str, list[str]]:
    """Return for each point that has several ways those that this kernel grants, the best first."""
    several = [point for point in points if len(point.ways) > 1]
    return {point.name: [way.name for way in point.ways if resolver.judge(way).granted] for point in several}


def skip_unless_granted(resolver: Resolver, point: str, way: AttachMethod) -> None:
    """Skip a test of a point's way that this kernel does not grant, with the reason."""
    verdict = resolver.judge(way)
    if not verdict.granted:
        pytest.skip(f"{point} by {way.name}: {verdict.reason}")


def together(granted: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return what to force in each run: each way of each point in one at least, in as few as a point has ways.

    Parameters
    ----------
    granted
        Point name → its ways that this kernel grants, the best first. Where they are fewer than the runs, the best is
        in several: what only goes with it is then seen with the others' second, too.
    """
    runs = max(map(len, granted.values()), default=0)
    return [
        {point: ways[max(0, number - (runs - len(ways)))] for point, ways in granted.items() if ways}
        for number in range(runs)
    ]


class Forced:
    """Runs that force ways; each is made when a test first asks for one of its ways, and again if it failed.

    Parameters
    ----------
    granted
        As for :func:`together`.
    measure
        Makes a run that forces these ways, asserts what it must see, and returns what was attached.
    """

    def __init__(self, granted: Mapping[str, Sequence[str]], measure: Callable[[Ways], Ways]) -> None:
        self._runs = together(granted)
        self._measure = measure
        self._attached: dict[int, Ways] = {}

    def attached(self, point: str, way: str) -> Ways:
        """Return what was attached in the first run that forces a way, which saw all that it must."""
        number = next(number for number, forced in enumerate(self._runs) if forced[point] == way)
        if number not in self._attached:
            self._attached[number] = self._measure(self._runs[number])
        return self._attached[number]
