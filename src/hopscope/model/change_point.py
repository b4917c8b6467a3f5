# SPDX-License-Identifier: Apache-2.0
"""When a series of figures began to be others: one step of its mean, and how sure that is.

The step is where two means explain most of the series (least squares). Figures that follow each other resemble each
other, so that a step is found in any series; chance is judged by the same search in series whose blocks of consecutive
figures are put into another order (a block permutation), which keeps what figures have in common with their neighbours.
The interval has the times whose likelihood, with the series' effective length, is not far below that of the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

F64: TypeAlias = "NDArray[np.float64]"

# Fewer figures on a side have no mean that is worth a step.
LEAST: Final = 5
_ORDERS: Final = 499
_BLOCKS: Final = 10
# Of a likelihood's logarithm, within which 95 % of all steps are (by simulation: tests/model/test_change_point.py).
_WITHIN: Final = 4.0
_MOST_SIMILAR: Final = 0.95
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a series' mean.

    Attributes
    ----------
    at
        Place of the first figure after it.
    least, most
        Places between which it is, with 95 % confidence.
    before, after
        Both means.
    probability
        That so large a step is found in a series without one.
    """

    at: int
    least: int
    most: int
    before: float
    after: float
    probability: float


def find_step(values: F64, weights: F64) -> Step | None:
    """Return the step of a series; None: it is too short.

    Parameters
    ----------
    values, weights
        In order of time, of shape (n,); times without a figure are left out.
    """
    if len(values) < 2 * LEAST:
        return None
    gains = _gains(values[None], weights[None], LEAST)[0]
    at = int(np.argmax(gains)) + LEAST
    before, after = (float(np.average(values[part], weights=weights[part])) for part in (slice(at), slice(at, None)))
    residuals = values - np.where(np.arange(len(values)) < at, before, after)
    similar = _similar(residuals)
    # The variance of a figure of weight 1, if figures did not resemble each other.
    variance = float((weights * residuals**2).sum()) / max(len(values) - 2, 1) * (1 + similar) / (1 - similar)
    likely = gains >= gains.max() - 2 * _WITHIN * variance if variance else gains >= gains.max()
    places = np.flatnonzero(likely) + LEAST
    order = np.random.default_rng(_SEED)
    blocks = np.array_split(np.arange(len(values)), min(_BLOCKS, len(values) // 2))
    orders = np.stack(
        [np.concatenate([blocks[each] for each in order.permutation(len(blocks))]) for _ in range(_ORDERS)]
    )
    by_chance = _gains(values[orders], weights[orders], LEAST).max(axis=1)
    probability = (1 + int((by_chance >= gains.max()).sum())) / (_ORDERS + 1)
    return Step(at, int(places.min()), int(places.max()), before, after, probability)


def largest_steps(values: F64, weights: F64, least: int) -> F64:
    """Return by how much the best step of each series explains more of it than one mean: series are rows.

    `least`: figures that each side has. Where a series has no figure, its weight is 0.
    """
    if values.shape[1] < 2 * least:
        return np.zeros(len(values))
    return np.asarray(_gains(values, weights, least).max(axis=1))


def _gains(values: F64, weights: F64, least: int) -> F64:
    """Return by how much two means explain more than one, of each step that leaves enough on both sides."""
    sums, sizes = np.cumsum(values * weights, axis=1), np.cumsum(weights, axis=1)
    total, size = sums[:, -1:], sizes[:, -1:]
    left, count = sums[:, least - 1 : -least], sizes[:, least - 1 : -least]
    rest = np.maximum(size - count, 1e-12)
    return np.asarray(
        left**2 / np.maximum(count, 1e-12) + (total - left) ** 2 / rest - total**2 / np.maximum(size, 1e-12)
    )


def _similar(residuals: F64) -> float:
    square = float((residuals**2).sum())
    if not square:
        return 0.0
    similar = float((residuals[1:] * residuals[:-1]).sum()) / square + 1 / sqrt(len(residuals))
    return min(max(similar, 0.0), _MOST_SIMILAR)
