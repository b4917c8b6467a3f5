# SPDX-License-Identifier: Apache-2.0
"""Times of several hosts on one axis: in order, and within the bound, whatever their clocks did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.clock.samples import Direction, Samples
from hopscope.errors import UsageError
from hopscope.store.meta import Metadata
from hopscope.trace.clock_bounds import SLOT_NS
from hopscope.trace.join.clocks import Axis, axes
from hopscope.trace.join.sources import Part, Source
from tests.lab.traces import ENDED_NS, REALTIME_NS, STARTED_NS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Ns = NDArray[np.int64]

SECOND = 1_000_000_000


def source(number: int, folder: Path, ahead: Callable[[Ns], Ns] = lambda times_ns: times_ns) -> Source:
    first, last = ahead(np.array([STARTED_NS, ENDED_NS])).tolist()
    metadata = Metadata("0", first, REALTIME_NS, {})
    return Source(number, f"host{number}", [Part(folder, metadata, first, last)])


def exchanged(sources: list[Source], ahead: Callable[[Ns], Ns], delays: NDArray[np.int64]) -> Samples:
    """Return packets there and back, that take so long, over all the time."""
    at_ns = np.linspace(STARTED_NS, ENDED_NS, delays.shape[1]).astype(np.int64)
    there = Direction(at_ns, ahead(at_ns + delays[0]))
    back = Direction(ahead(at_ns), at_ns + delays[1])
    return Samples(sources[0].domain, sources[1].domain, there, back, 1)  # times are rounded


delays = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).exponential(20_000, (2, 300)).astype(np.int64) + 400
)


@pytest.mark.slow
@given(st.integers(-(10**15), 10**15), st.floats(-1e-4, 1e-4), st.floats(-1e-9, 1e-9), delays)
def test_times_are_within_the_bound_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, offset_ns: int, drift: float, wander: float, taken: NDArray[np.int64]
) -> None:
    def ahead(times_ns: Ns) -> Ns:
        since = times_ns - STARTED_NS
        return times_ns + offset_ns + np.rint(drift * since + wander / 2 * since * (since / SECOND)).astype(np.int64)

    folder = tmp_path_factory.getbasetemp()
    sources = [source(0, folder), source(1, folder, ahead)]
    samples = exchanged(sources, ahead, taken)
    (first, second), (pair,) = axes(sources, {(0, 1): samples}, {}, {})
    true_ns = np.linspace(STARTED_NS, ENDED_NS, 999).astype(np.int64)
    found_ns = second.times_ns(ahead(true_ns))
    bound_ns = second.bound_ns[np.searchsorted(second.at_ns, found_ns, side="right") - 1]
    assert (np.abs(found_ns - true_ns) <= bound_ns).all()
    assert (np.diff(found_ns) > 0).all()
    assert (first.times_ns(true_ns) == true_ns).all()
    assert not first.bound_ns.any()
    assert (second.at_ns % SLOT_NS == 0).all()
    assert pair.probes == (300, 300)


@given(st.lists(st.integers(-400_000_000, 400_000_000), min_size=3, max_size=8), st.data())
def test_what_was_in_order_stays_in_order_whatever_the_offsets(offsets: list[int], data: st.DataObject) -> None:
    at_ns = np.arange(len(offsets)) * SLOT_NS
    offset_ns = np.array(offsets)
    if (np.diff(at_ns + offset_ns) <= 0).any():
        return
    axis = Axis(at_ns, offset_ns, np.zeros(len(at_ns), np.int64))
    times = sorted(data.draw(st.lists(st.integers(-(10**10), 10**10), min_size=2)))
    assert (np.diff(axis.times_ns(np.array(times))) >= 0).all()
    assert axis.times_ns(at_ns + offset_ns).tolist() == at_ns.tolist()


def test_rows_say_what_was_taken_off() -> None:
    axis = Axis(np.array([0, SLOT_NS]), np.array([100, 110]), np.array([7, 9]))
    rows = axis.rows(3)
    assert rows["host"].tolist() == [3, 3]
    assert rows["low_ns"].tolist() == [93, 101]
    assert rows["high_ns"].tolist() == [107, 119]


def test_packets_of_one_direction_compare_nothing(tmp_path: Path) -> None:
    sources = [source(number, tmp_path) for number in range(2)]
    samples = exchanged(sources, lambda times_ns: times_ns, np.full((2, 300), 500))
    one_way = replace(samples, back=Direction(np.empty(0, np.int64), np.empty(0, np.int64)))
    with pytest.raises(UsageError, match="cannot be compared"):
        axes(sources, {(0, 1): one_way}, {}, {})


def test_packets_make_the_bound_smaller_and_leave_the_value_to_the_probes(tmp_path: Path) -> None:
    sources = [source(number, tmp_path) for number in range(2)]
    probes = exchanged(sources, lambda times_ns: times_ns, np.full((2, 300), 1000))
    quick = exchanged(sources, lambda times_ns: times_ns, np.stack([np.full(300, 400), np.full(300, 5000)]))
    alone, _ = axes(sources, {(0, 1): probes}, {}, {})
    both, (pair,) = axes(sources, {(0, 1): probes}, {(0, 1): quick}, {})
    middle = len(alone[1].at_ns) // 2
    assert abs(int(both[1].offset_ns[middle])) <= 2
    assert abs(int(alone[1].offset_ns[middle])) <= 2
    # In one direction only: the other one still allows as much.
    assert both[1].bound_ns[middle] <= alone[1].bound_ns[middle]
    assert (pair.probes, pair.packets, pair.refused) == ((300, 300), (300, 300), 0)
