# SPDX-License-Identifier: Apache-2.0
"""A collector that measures a part: packets are left out by chance, and programs are detached in between.

What was measured counts with a weight. It stands for the time since the last that counted: for what came while it was
measured, and for what came in the gap before. Of hops of packets, each sample stands for those that were left out, too.

Before programs are detached, no further packet is followed for a while, in which those that are get to their readers.
What takes longer is missing.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.sampled import Coverage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hopscope.live.cost import CostMeter
    from hopscope.live.series import Series
    from hopscope.live.session import Session

# While programs are attached one after the other, nothing is known.
_NEVER: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Covered:
    """Cumulative figures of what was measured; :class:`~hopscope.model.sampled.Coverage` says what they mean.

    Attributes
    ----------
    at_s
        CLOCK_MONOTONIC up to which estimates are made.
    """

    at_s: float
    open_s: float = 0.0
    followed_s: float = 0.0
    slices: int = 0

    def since(self, earlier: Covered, budget_percent: float) -> Coverage:
        """Return what came after an earlier state."""
        return Coverage(
            budget_percent,
            self.at_s - earlier.at_s,
            self.open_s - earlier.open_s,
            self.followed_s - earlier.followed_s,
            self.slices - earlier.slices,
        )


class Slices:
    """Attaches and detaches, and weighs what was measured. All is attached at first.

    Parameters
    ----------
    session, meter, series
        Of the collector.
    cleared
        Names of the programs' variables that do not say of when they are: they become 0 while none is attached.
    again
        Called when they are attached again.
    packets
        Name of the programs' counter of packets or messages, those that are left out by chance included.
    sampled
        Numbers of the hops that are recorded of packets that are followed alone.

    Attributes
    ----------
    covered
        What counts.
    meter
        As given.
    halvings
        One packet in 2 ** `halvings` is followed.

    Raises
    ------
    KernelError
        The kernel does not attach programs a second time.
    """

    def __init__(  # noqa: PLR0913 # what a collector has
        self,
        *,
        session: Session,
        meter: CostMeter,
        series: Series,
        cleared: Collection[str],
        again: Callable[[], None] = lambda: None,
        packets: str = "packets",
        sampled: Collection[int],
    ) -> None:
        self.meter = meter
        self._session, self._series = session, series
        self._again, self._packets = again, packets
        variables = session.bpf.data()
        self._cleared = [variables[name] for name in cleared]
        self._sampling = session.bpf.data(".bss.sampling")["sampling"]
        self._counters = session.bpf.maps["counters"].array()
        self._sampled = np.isin(np.arange(series.hops), [*sampled])
        self._lock = threading.Lock()  # of what counts
        session.require_resumable()
        self.halvings = 0
        self._series.estimate()
        self._open()
        self.covered = Covered(self._slice_s)

    def packets(self) -> int:
        """Return how many packets came while they were followed, or left out by chance."""
        return int(self._counters[self._packets].sum())

    def follow(self, halvings: int) -> None:
        """From now on, follow one packet in 2 ** `halvings`."""
        with self._lock:
            self._count(time.monotonic())
            self.halvings = halvings
            self._sampling["mask"] = 2**halvings - 1

    def count(self) -> Covered:
        """Let what was measured count, up to now; return what counts.

        A slice that is still shorter than the gap before it counts once it has ended: few packets would stand for many.
        """
        with self._lock:
            now_s = time.monotonic()
            if self._is_open and now_s - self._slice_s >= self._slice_s - self.covered.at_s:
                self._count(now_s)
            return self.covered

    def close(self) -> float:
        """Follow no further packet; return for how long packets were followed since :meth:`attach`."""
        self._sampling["open"] = 0
        self._closed_s = time.monotonic()
        self._is_open = False
        return self._closed_s - self._slice_s

    def detach(self) -> None:
        """Detach programs, after :meth:`close`; what they measured counts, up to when they were closed."""
        with self._lock:
            self._count(self._closed_s)
        self._session.pause()
        self.meter.detached()

    def attach(self) -> None:
        """Attach programs again, and follow packets.

        Raises
        ------
        LoadError
            The kernel refuses what it has granted before.
        """
        self._sampling["since_ns"] = _NEVER
        self._sampling["epoch"] += 1
        for variable in self._cleared:
            variable[...] = np.zeros((), variable.dtype)
        self._session.resume()
        self._again()
        self.meter.attached()
        with self._lock:
            self.covered = replace(self.covered, slices=self.covered.slices + 1)
            self._open()

    def _open(self) -> None:
        self._sampling["since_ns"] = time.monotonic_ns()
        self._sampling["open"] = 1
        self._slice_s, self._is_open = time.monotonic(), True

    def _count(self, until_s: float) -> None:
        covered = self.covered
        open_s = until_s - max(self._slice_s, covered.at_s)
        if open_s <= 0:
            return
        weight, left_out = (until_s - covered.at_s) / open_s, 2**self.halvings
        weights = np.where(self._sampled, weight * left_out, weight)
        self._series.add(weights, sliced=self._slice_s > covered.at_s)
        self.covered = Covered(until_s, covered.open_s + open_s, covered.followed_s + open_s / left_out, covered.slices)
