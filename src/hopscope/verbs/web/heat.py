# SPDX-License-Identifier: Apache-2.0
"""Histograms over time in the form that the page draws, live and of a recording."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.model.histogram import upper_bounds_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import Histogram


def over_time(parts: Sequence[Histogram], width_s: float) -> dict[str, Any]:
    """Return a hop in slices of time as the page draws it: cells, packets a second, percentiles.

    A cell is (slice, bucket, count).
    """
    return {
        "cells": [
            [column, slot, int(part.counts[slot])]
            for column, part in enumerate(parts)
            for slot in np.flatnonzero(part.counts).tolist()
        ],
        "count": [part.count for part in parts],
        "per_s": [part.count / width_s for part in parts],
        "p50_ns": [part.percentile(50) for part in parts],
        "p95_ns": [part.percentile(95) for part in parts],
    }


def upper_ns() -> list[float | None]:
    """Return the upper bound of each bucket; None: there is none."""
    return [None if math.isinf(each) else each * 1e9 for each in upper_bounds_s().tolist()]
