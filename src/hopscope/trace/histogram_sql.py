# SPDX-License-Identifier: Apache-2.0
"""Durations counted by the SQL engine in the buckets of :mod:`hopscope.model.histogram`."""

from __future__ import annotations

from hopscope.model.histogram import INDEX_TO_SLOT, OVERFLOW_SLOT, ZERO_SLOT, thresholds_ns


def slot(duration_ns: str) -> str:
    """Return the SQL expression for the bucket (0..257) of a duration, an expression that is at least 0.

    In binary floating point it equals :func:`~hopscope.model.histogram.bucket_of`, because no bucket boundary except
    the powers of two is a whole number of nanoseconds, or close to one.
    """
    most_ns = thresholds_ns()[-1]
    return (
        f"CASE WHEN {duration_ns} <= {thresholds_ns()[0]} THEN {ZERO_SLOT}"
        f" WHEN {duration_ns} > {most_ns} THEN {OVERFLOW_SLOT}"
        f" ELSE {INDEX_TO_SLOT} + CAST(ceil(8 * log2({duration_ns} / 1e9)) AS INTEGER) END"
    )
