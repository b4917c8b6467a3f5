# SPDX-License-Identifier: Apache-2.0
"""The histograms and counters of one collector in the kernel: mapped memory, read once an interval.

The kernel side is ``bpf/common/series.h``.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from hopscope.libbpf import possible_cpus
from hopscope.live.estimate import Estimate
from hopscope.model.histogram import Histogram
from hopscope.model.sampled import PercentileBounds
from hopscope.model.snapshot import PERCENTILES, Discard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hopscope.libbpf import BpfObject
    from hopscope.live.cost import CostMeter, CostReading
    from hopscope.live.estimate import Spreads
    from hopscope.live.hops import Hop
    from hopscope.live.labels import Labels
    from hopscope.model.snapshot import Bounds

Array = np.ndarray[Any, np.dtype[Any]]
EVERY_CPU: Final = slice(None)
NOTHING: Final[Mapping[int, int]] = {}
Reason = TypeVar("Reason", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it at one instant, cumulative.

    Attributes
    ----------
    slots
        int64, shape (cpus, hops, groups, 258).
    sum_ns
        int64, shape (cpus, hops, groups).
    discarded
        int64, shape (hops, reasons).
    counts
        The other counters by their names in the kernel side, over all CPUs.
    at_s, clock_ns
        CLOCK_MONOTONIC and, for display, CLOCK_REALTIME.
    cost
        What the programs and this process took.
    spreads
        Of estimates, where a part was measured; then `slots`, `sum_ns` and `discarded` are of the whole.
    """

    slots: Array
    sum_ns: Array
    discarded: Array
    counts: dict[str, int]
    at_s: float
    clock_ns: int
    cost: CostReading
    spreads: Spreads | None = None


@dataclass(frozen=True)
class Span:
    """What came between two readings, with the largest durations of that time."""

    before: Reading
    after: Reading
    maxima: Array
    _of_rows: dict[tuple[int, int | None], tuple[Array, Array, Array]] = field(default_factory=dict, init=False)

    @cached_property
    def discarded(self) -> Array:
        """int64, shape (hops, reasons)."""
        return self.after.discarded - self.before.discarded

    def count(self, name: str) -> int:
        """Return by how much a counter rose."""
        return self.after.counts[name] - self.before.counts[name]

    def discards(self, hops: Iterable[Hop], meanings: Mapping[Reason, str], prefix: str) -> list[Discard]:
        """Return the samples of these hops that could not be used, by reason; `prefix` goes off their names."""
        return [
            Discard(hop.name, reason.name.removeprefix(prefix).lower(), int(self.discarded[hop.hop, reason]), meaning)
            for hop in hops
            for reason, meaning in meanings.items()
            if self.discarded[hop.hop, reason]
        ]

    def histogram(self, hop: int, row: int, cpus: slice = EVERY_CPU) -> Histogram:
        """Return the durations of a hop and a group, over all CPUs or some."""
        counts, sums_ns, maxima_ns = self._of_row(row, cpus)
        return Histogram(counts[hop], int(sums_ns[hop]), int(maxima_ns[hop]))

    def bounds(self, hop: int, row: int, cpus: slice, histogram: Histogram) -> Mapping[str, Bounds] | None:
        """Return between which durations in ns percentiles of a hop and a group are; None where all was measured.

        Of a single CPU that is not known.
        """
        if self.before.spreads is None or self.after.spreads is None:
            return None
        if cpus != EVERY_CPU:
            return dict.fromkeys(PERCENTILES)
        return PercentileBounds(histogram, self.after.spreads.since(self.before.spreads, hop, row))

    def _of_row(self, row: int, cpus: slice) -> tuple[Array, Array, Array]:
        """Return counts, sums and maxima of all hops of a group: one look at the arrays, not one a hop."""
        key = (row, cpus.start)
        if key not in self._of_rows:
            counts = (self.after.slots[cpus, :, row] - self.before.slots[cpus, :, row]).sum(axis=0)
            sums_ns = (self.after.sum_ns[cpus, :, row] - self.before.sum_ns[cpus, :, row]).sum(axis=0)
            self._of_rows[key] = counts, sums_ns, self.maxima[cpus, :, row].max(axis=0)
        return self._of_rows[key]


def series_of(
    group_by: str | None, bpf: BpfObject, labels: Labels, rest: str
) -> Iterator[tuple[dict[str, str], slice, int]]:
    """Yield label, CPUs and row of each series of a hop; `rest` is what row 0 is called, which comes last."""
    if group_by is None:
        yield {}, EVERY_CPU, 0
    elif group_by == "cpu":
        for cpu in range(possible_cpus()):
            yield {group_by: str(cpu)}, slice(cpu, cpu + 1), 0
    else:
        rows, groups = bpf.maps["groups"].items()
        found = [(int(row), labels.name(group)) for row, group in zip(rows, groups, strict=True)]
        for row, name in [*sorted(found, key=lambda item: item[1]), (0, rest)]:
            yield {group_by: name}, EVERY_CPU, row


class Series:
    """The maps of a loaded object.

    Parameters
    ----------
    bpf
        The object.
    hops, discards
        How many of each the kernel side's enums have.
    rows
        Groups a hop has, "other" included.
    cost
        Of the object's programs.
    """

    def __init__(self, bpf: BpfObject, *, hops: int, discards: int, rows: int, cost: CostMeter) -> None:
        self.hops = hops
        self._shape = (possible_cpus(), hops, rows)
        self._discards = discards
        self._cost = cost
        self._rows = bpf.maps["histograms"].array().reshape(self._shape)
        self._counters = bpf.maps["counters"].array()
        self._rows["max_ns"] = 0
        self._maxima = np.zeros(self._shape, np.int64)
        # Hop → samples and their sum that turned out to be useless, and the reason that they are counted by.
        self._voided: dict[int, tuple[Array, Array, int]] = {}
        self._estimate: Estimate | None = None
        self._lock = threading.Lock()
        self._first = self._last = self._read()

    def estimate(self) -> None:
        """From now on, tell of the whole, of which :meth:`add` has what was measured."""
        self._estimate = Estimate(*self._measured())
        self._first = self._last = self._read()

    def add(self, weights: Array, *, sliced: bool) -> None:
        """Let what was measured since the last time stand for more.

        Parameters
        ----------
        weights
            float64, shape (hops,): for how many of its kind each sample stands.
        sliced
            Whether it is all of a slice of time, rather than samples that were taken one by one.
        """
        with self._lock:
            if self._estimate:
                self._estimate.add(self._measured(), weights, sliced=sliced)

    @staticmethod
    def size(bpf: BpfObject, *, hops: int, rows: int) -> None:
        """Set the sizes of the maps before the object is loaded."""
        bpf.set_const("cfg_groups", rows)
        bpf.maps["histograms"].set_max_entries(possible_cpus() * hops * rows)
        bpf.maps["counters"].set_max_entries(possible_cpus())
        bpf.maps["groups"].set_max_entries(rows)
        bpf.maps["group_rows"].set_max_entries(rows)

    def interval(self, void: Mapping[int, int] = NOTHING) -> Span:
        """Return what came since the last call.

        Parameters
        ----------
        void
            Hop → reason, for hops whose samples of this time cannot be used: they are counted as discarded.
        """
        before, raw = self._last, self._read()
        taken = self._rows["max_ns"].astype(np.int64)
        self._rows["max_ns"] = 0
        for hop, reason in void.items():
            useless = raw.slots[:, hop] - before.slots[:, hop], raw.sum_ns[:, hop] - before.sum_ns[:, hop]
            self._voided[hop] = (*useless, reason)
            taken[:, hop] = 0
        for hop, (slots, sum_ns, reason) in self._voided.items():
            raw.slots[:, hop] -= slots
            raw.sum_ns[:, hop] -= sum_ns
            raw.discarded[hop, reason] += slots.sum()
        self._last = raw
        self._maxima = np.maximum(self._maxima, taken)
        return Span(before, raw, taken)

    def total(self) -> Span:
        """Return what came since the start, as of the last :meth:`interval`."""
        return Span(self._first, self._last, self._maxima)

    def _read(self) -> Reading:
        counters = self._counters
        scalars = [name for name in counters.dtype.names or () if name != "discarded" and counters[name].ndim == 1]
        with self._lock:
            estimate = self._estimate
            slots, sum_ns, discarded = estimate.rounded() if estimate else self._measured()
            spreads = estimate.spreads if estimate else None
        return Reading(
            slots=slots,
            sum_ns=sum_ns,
            discarded=discarded,
            spreads=spreads,
            counts={name: int(counters[name].sum()) for name in scalars},
            at_s=time.monotonic(),
            clock_ns=time.time_ns(),
            cost=self._cost.read(),
        )

    def _measured(self) -> tuple[Array, Array, Array]:
        """Return slots, sums and discards as the kernel has them."""
        discards = self._counters["discarded"].astype(np.int64).sum(axis=0)
        return (
            self._rows["slots"].astype(np.int64),
            self._rows["sum_ns"].astype(np.int64),
            discards.reshape(self._shape[1], self._discards),
        )
