# SPDX-License-Identifier: Apache-2.0
"""Estimates of a whole that is known, from parts of it: how often percentiles are within their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from hopscope.live.estimate import Estimate
from hopscope.model.histogram import SLOTS, Histogram, thresholds_ns
from hopscope.model.sampled import CONFIDENCE_PERCENT, Coverage

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRIALS: Final = 400
# Of 400 trials that each hit with 95 %, fewer than 92 % hit once in 400 suites; slices are fewer than theory likes.
LEAST: Final = {False: 0.92, True: 0.90}
CELLS: Final = 4000


def cells(chance: np.random.Generator) -> NDArray[np.int64]:
    """Return histograms of short pieces of time, shape (CELLS, SLOTS): bursts of packets, which are slow together."""
    load = np.exp(np.convolve(chance.normal(size=CELLS + 40), np.ones(40) / 8, "valid")[:CELLS])
    counts = chance.poisson(20 * load)
    found = np.zeros((CELLS, SLOTS), np.int64)
    for number, count in enumerate(counts):
        durations_ns = chance.lognormal(9 + 0.4 * np.log(load[number]), 0.7, count)
        slots = np.searchsorted(np.array(thresholds_ns()), durations_ns.astype(np.int64))
        found[number] = np.bincount(slots, minlength=SLOTS)
    return found


def whole(slots: NDArray[np.int64]) -> Histogram:
    return Histogram(slots, 0, thresholds_ns()[int(np.flatnonzero(slots)[-1])])


class Measured:
    """Measures parts of cells as a collector of one hop and one group does."""

    def __init__(self) -> None:
        self.slots = np.zeros((1, 1, 1, SLOTS), np.int64)
        self.estimate = Estimate(*self.now())

    def now(self) -> tuple[NDArray[np.int64], ...]:
        return self.slots.copy(), np.zeros((1, 1, 1), np.int64), np.zeros((1, 1), np.int64)

    def add(self, slots: NDArray[np.int64], weight: float, *, sliced: bool) -> None:
        self.slots[0, 0, 0] += slots
        self.estimate.add(self.now(), np.array([weight]), sliced=sliced)

    def histogram(self) -> Histogram:
        return whole(self.estimate.rounded()[0][0, 0, 0])

    def bounds(self, q: float) -> tuple[float, float | None] | None:
        spreads = self.estimate.spreads
        return spreads.since(type(spreads).none(1, 1), 0, 0).bounds(self.histogram(), q)


def by_slices(population: NDArray[np.int64], chance: np.random.Generator) -> Measured:
    """Measure a slice of a twentieth of each of 25 gaps, at a random place in it."""
    measured, gap, length = Measured(), CELLS // 25, CELLS // 25 // 20
    for start in range(0, CELLS, gap):
        first = start + int(chance.integers(gap - length))
        measured.add(population[first : first + length].sum(axis=0), gap / length, sliced=True)
    return measured


def by_chance(population: NDArray[np.int64], chance: np.random.Generator) -> Measured:
    """Measure one in 64, then one in 16."""
    measured = Measured()
    for part, left_out in ((population[: CELLS // 2], 64), (population[CELLS // 2 :], 16)):
        measured.add(chance.binomial(part.sum(axis=0), 1 / left_out), left_out, sliced=False)
    return measured


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("q", [50.0, 99.0])
def test_percentiles_are_within_their_bounds_as_often_as_they_say(q: float, *, sliced: bool) -> None:
    chance = np.random.default_rng(20)
    population = cells(chance)
    truth_ns = whole(population.sum(axis=0)).percentile(q)
    assert truth_ns
    hits, widths = 0, []
    for _ in range(TRIALS):
        bounds = (by_slices if sliced else by_chance)(population, chance).bounds(q)
        assert bounds
        hits += bounds[0] <= truth_ns <= (bounds[1] or np.inf)
        widths.append((bounds[1] or np.inf) / bounds[0])
    assert hits >= LEAST[sliced] * TRIALS
    assert np.median(widths) < 3  # they say something
    assert CONFIDENCE_PERCENT == 95


@pytest.mark.parametrize("sliced", [False, True])
def test_counts_are_right_on_average(*, sliced: bool) -> None:
    chance = np.random.default_rng(21)
    population = cells(chance)
    found = [(by_slices if sliced else by_chance)(population, chance).histogram().count for _ in range(TRIALS)]
    error = np.std(found) / np.sqrt(TRIALS)
    assert abs(np.mean(found) - population.sum()) < 4 * error


def test_what_was_measured_whole_is_exact() -> None:
    population = cells(np.random.default_rng(22))
    measured = Measured()
    measured.add(population.sum(axis=0), 1.0, sliced=False)
    exact = whole(population.sum(axis=0))
    assert measured.histogram() == exact
    assert measured.bounds(99.0) == exact.percentile_bounds(99.0)


def test_one_slice_says_nothing_of_others() -> None:
    measured = Measured()
    measured.add(np.bincount([100, 120, 120], minlength=SLOTS), 10.0, sliced=True)
    assert measured.histogram().count == 30
    assert measured.bounds(50.0) is None


def test_few_samples_do_not_bound_what_is_rare() -> None:
    measured = Measured()
    measured.add(np.bincount([100] * 20, minlength=SLOTS), 8.0, sliced=False)
    bounds = measured.bounds(99.0)
    assert bounds
    assert bounds[1] is None
    assert Histogram.empty().percentile_bounds(50.0) is None


def test_coverage_without_time_is_none() -> None:
    nothing = Coverage(0.5, 0.0, 0.0, 0.0, 0)
    assert (nothing.open_share, nothing.followed_share) == (0.0, 0.0)
