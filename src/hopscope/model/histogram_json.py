# SPDX-License-Identifier: Apache-2.0
"""Histograms in JSON: buckets with samples, each with its bounds in seconds; both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import FormatError
from hopscope.model.histogram import OVERFLOW_SLOT, SLOTS, ZERO_SLOT, Histogram, lower_bounds_s, upper_bounds_s

if TYPE_CHECKING:
    from hopscope.model.checked_json import Fields

# So that the sum of many cannot overflow. It would take a CPU a year to count so many.
_MOST_SAMPLES: Final = 2**48


def buckets_to_json(histogram: Histogram) -> list[dict[str, Any]]:
    """Return the buckets that have samples, ascending; a bound that does not exist is null."""
    lower_s, upper_s = lower_bounds_s(), upper_bounds_s()
    return [
        {
            "gt_s": None if slot == ZERO_SLOT else float(lower_s[slot]),
            "le_s": None if slot == OVERFLOW_SLOT else float(upper_s[slot]),
            "count": int(histogram.counts[slot]),
        }
        for slot in np.flatnonzero(histogram.counts).tolist()
    ]


def histogram_from_json(row: Fields) -> Histogram:
    """Return the histogram of a hop's object, from its ``buckets``, ``sum_ns``, ``max_ns`` and ``count``.

    Raises
    ------
    FormatError
        A bound is none of ours, or the buckets do not add up.
    """
    counts = np.zeros(SLOTS, np.int64)
    for bucket in row.parts("buckets"):
        le_s = bucket.number_or_none("le_s")
        bound_s = np.inf if le_s is None else le_s
        slot = int(np.searchsorted(upper_bounds_s(), bound_s))
        if upper_bounds_s()[slot] != bound_s:
            raise FormatError(f"{le_s} is not a bound of a bucket")
        count = bucket.whole("count")
        if count >= _MOST_SAMPLES:
            raise FormatError(f"{count} is not a number of samples")
        counts[slot] += count
    histogram = Histogram(counts, row.whole("sum_ns"), row.whole_or_none("max_ns") or 0)
    if histogram.count != row.whole("count"):
        raise FormatError("The buckets of a histogram do not add up")
    return histogram
