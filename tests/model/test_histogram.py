# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.histogram import (
    INDEX_TO_SLOT,
    MAX_INDEX,
    MIN_INDEX,
    OVERFLOW_SLOT,
    SLOTS,
    U64_MAX,
    Histogram,
    bucket_of,
    c_table,
    lower_bounds_s,
    main,
    slot_of,
    threshold_mantissas,
    thresholds_ns,
    upper_bounds_s,
)

BUCKET_WIDTH = 2 ** (1 / 8)
u64 = st.integers(0, U64_MAX)
# Even in the number of bits, so that short durations are tried as often as ages.
durations = st.integers(0, 64).flatmap(lambda bits: st.integers(0, max(2**bits - 1, 0)))
samples = st.lists(st.integers(0, 20 * 10**9), min_size=1, max_size=200)


def within_bound(value_ns: int, index: int) -> bool:
    """Whether value <= 2**(index / 8) s, by integers: both sides to the eighth power."""
    left, right = value_ns**8, 10**72
    return left <= right << index if index >= 0 else left << -index <= right


def all_bounds_ns() -> list[int]:
    """Return every whole-ns bound from 1 ns to 2**64 ns, also those beyond the histogram."""
    bounds = []
    for index in range(-240, 274):
        low, high = 0, 2**65
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within_bound(middle, index) else (low, middle)
        bounds.append(low)
    return bounds


@given(durations)
def test_bucket_of_matches_the_definition(value_ns: int) -> None:
    slot = bucket_of(value_ns)
    if slot > 0:
        assert not within_bound(value_ns, slot - INDEX_TO_SLOT - 1)
    if slot < OVERFLOW_SLOT:
        assert within_bound(value_ns, slot - INDEX_TO_SLOT)


def test_bucket_of_known_values() -> None:
    assert [bucket_of(value) for value in (0, 59, 60, 256 * 10**9, 256 * 10**9 + 1)] == [0, 0, 1, 256, 257]
    assert bucket_of(10**9) == INDEX_TO_SLOT
    assert bucket_of(10**9 + 1) == INDEX_TO_SLOT + 1


@given(u64)
def test_slot_of_equals_exact_arithmetic(value_ns: int) -> None:
    assert slot_of(value_ns) == bucket_of(value_ns)


@given(durations)
def test_slot_of_equals_exact_arithmetic_at_every_magnitude(value_ns: int) -> None:
    assert slot_of(value_ns) == bucket_of(value_ns)


def test_slot_of_is_exact_beside_every_bound() -> None:
    near = (
        {bound + step for bound in all_bounds_ns() for step in (-1, 0, 1)} | {2**bit for bit in range(64)} | {U64_MAX}
    )
    near |= {(16 + cell) << shift for cell in range(16) for shift in range(60)}
    tried = [value for value in near if 0 <= value <= U64_MAX]
    assert [value for value in tried if slot_of(value) != bucket_of(value)] == []
    assert len(tried) > 2_000


def test_thresholds_follow_the_definition() -> None:
    thresholds = thresholds_ns()
    assert len(thresholds) == SLOTS - 1
    for index, threshold in zip(range(MIN_INDEX - 1, MAX_INDEX + 1), thresholds, strict=True):
        assert within_bound(threshold, index)
        assert not within_bound(threshold + 1, index)


def test_cells_hold_one_bound_at_most() -> None:
    cells = threshold_mantissas()
    bounds = [cell.threshold for cell in cells if cell.threshold != U64_MAX]
    assert len(bounds) == 8
    assert all(
        (bound >> 59) & 15 == number for number, bound in enumerate(c.threshold for c in cells) if bound in bounds
    )


def test_bounds_are_upper_inclusive_seconds() -> None:
    upper_s, lower_s = upper_bounds_s(), lower_bounds_s()
    assert upper_s[0] == 2**-24
    assert upper_s[INDEX_TO_SLOT] == 1.0
    assert upper_s[224] == 16.0
    assert np.isinf(upper_s[257])
    assert lower_s[0] == 0
    assert np.array_equal(lower_s[1:], upper_s[:-1])


def test_c_table_has_the_numbers_of_the_cells() -> None:
    text = c_table()
    thresholds = [int(word[:-4], 16) for word in text.split() if word.startswith("0x")]
    assert thresholds == [cell.threshold for cell in threshold_mantissas()]
    bases = text.split("hist_base[16] = {")[1].split("}")[0]
    assert [int(word) for word in bases.replace(",", " ").split()] == [cell.base for cell in threshold_mantissas()]


def test_module_prints_the_c_table() -> None:
    command = [sys.executable, "-W", "error", "-m", "hopscope.model.histogram", "--c-table"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == c_table()


def test_module_refuses_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "--c-table" in capsys.readouterr().err


@given(samples)
def test_from_values_counts_as_bucket_of(values: list[int]) -> None:
    histogram = Histogram.from_values(values)
    expected = [0] * SLOTS
    for value in values:
        expected[bucket_of(value)] += 1
    assert histogram.counts.tolist() == expected
    assert (histogram.sum_ns, histogram.max_ns, histogram.count) == (sum(values), max(values), len(values))
    assert histogram.mean_ns == sum(values) / len(values)


@given(samples, st.floats(0, 100))
def test_percentile_is_within_a_bucket_of_the_truth(values: list[int], q: float) -> None:
    found = Histogram.from_values(values).percentile(q)
    truth = sorted(values)[max(ceil(q / 100 * len(values)) - 1, 0)]
    assert found is not None
    assert 0 <= found <= max(values)
    if bucket_of(truth) == 0:
        assert found <= 2**-24 * 1e9
    elif bucket_of(truth) == OVERFLOW_SLOT:
        assert found >= 256e9
    else:
        assert truth / BUCKET_WIDTH * (1 - 1e-9) <= found <= truth * BUCKET_WIDTH * (1 + 1e-9)


@given(samples, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_rise_with_q(values: list[int], one: float, other: float) -> None:
    histogram = Histogram.from_values(values)
    low, high = histogram.percentile(min(one, other)), histogram.percentile(max(one, other))
    assert low is not None
    assert high is not None
    assert low <= high


def test_percentile_interpolates_geometrically() -> None:
    counts = np.zeros(SLOTS, np.int64)
    counts[INDEX_TO_SLOT] = 2
    assert Histogram(counts, 0, 10**10).percentile(50) == pytest.approx(2 ** (-1 / 16) * 1e9)


def test_percentile_never_exceeds_the_maximum() -> None:
    assert Histogram.from_values([1_000_000_001] * 5).percentile(99.9) == 1_000_000_001


def test_percentile_of_nothing_is_none() -> None:
    empty = Histogram.empty()
    assert empty.percentile(50) is None
    assert empty.mean_ns is None
    assert empty.count == 0


@pytest.mark.parametrize("q", [-0.1, 100.1, float("nan")])
def test_percentile_refuses_what_is_none(q: float) -> None:
    with pytest.raises(ValueError, match=r"within 0\.\.100"):
        Histogram.empty().percentile(q)


@given(samples, samples)
def test_add_is_the_histogram_of_all_values(one: list[int], other: list[int]) -> None:
    assert Histogram.from_values(one) + Histogram.from_values(other) == Histogram.from_values(one + other)


@given(samples, samples)
def test_since_gives_back_what_was_added(one: list[int], other: list[int]) -> None:
    earlier, added = Histogram.from_values(one), Histogram.from_values(other)
    assert (earlier + added).since(earlier, max_ns=added.max_ns) == added


@given(samples, samples)
def test_since_without_a_maximum_is_at_most_a_bucket_too_large(one: list[int], other: list[int]) -> None:
    earlier, added = Histogram.from_values(one), Histogram.from_values(other)
    found = ((earlier + added) - earlier).max_ns
    assert added.max_ns <= found <= max(one + other)
    assert bucket_of(found) == bucket_of(added.max_ns)


def test_since_nothing_happened_has_no_maximum() -> None:
    histogram = Histogram.from_values([5, 10**6])
    assert histogram - histogram == Histogram.empty()


def test_since_refuses_the_wrong_order() -> None:
    later = Histogram.from_values([1, 2])
    with pytest.raises(ValueError, match="non-negative"):
        _ = Histogram.empty() - later


@given(samples, st.integers(-2, 3))
def test_downscale_moves_each_index_to_half_rounded_up(values: list[int], scale: int) -> None:
    histogram = Histogram.from_values(values)
    expected: dict[int, int] = {}
    for slot in range(1, OVERFLOW_SLOT):
        index = slot - INDEX_TO_SLOT
        for _ in range(3 - scale):
            index = -(-index // 2)
        expected[index] = expected.get(index, 0) + int(histogram.counts[slot])
    buckets = histogram.downscale(scale)
    found = {buckets.first_index + number: count for number, count in enumerate(buckets.counts.tolist())}
    assert found == expected
    assert buckets.zero_count + buckets.overflow_count + buckets.counts.sum() == histogram.count


@pytest.mark.parametrize("scale", range(-2, 4))
def test_downscaled_edges_keep_the_ends(scale: int) -> None:
    buckets = Histogram.empty().downscale(scale)
    edges_s = buckets.edges_s()
    assert len(edges_s) == len(buckets.counts) + 1
    assert (edges_s[0], edges_s[-1]) == (2**-24, 256.0)


@pytest.mark.parametrize("scale", [-3, 4])
def test_downscale_refuses_what_would_not_be_exact(scale: int) -> None:
    with pytest.raises(ValueError, match=str(scale)):
        Histogram.empty().downscale(scale)


def test_counts_are_checked_and_kept() -> None:
    with pytest.raises(ValueError, match="258"):
        Histogram(np.zeros(257, np.int64), 0, 0)
    source = np.zeros(SLOTS, np.int64)
    histogram = Histogram(source, 0, 0)
    source[3] = 1
    assert histogram.count == 0
    with pytest.raises(ValueError, match="read-only"):
        histogram.counts[0] = 1


def test_equality_needs_counts_sum_and_maximum() -> None:
    one = Histogram.from_values([60])
    assert one != Histogram(one.counts, one.sum_ns, one.max_ns + 1)
    assert one != Histogram(one.counts, one.sum_ns + 1, one.max_ns)
    assert one != Histogram.empty()
    assert one != "histogram"
