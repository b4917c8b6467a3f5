# SPDX-License-Identifier: Apache-2.0
"""Which of many hosts differ from the rest: ranks of durations within blocks of time.

A host sends millions of packets, and they resemble each other: a test that took each of them as independent would find
that every host differs. So packets give one figure for a host and an hour: the probability that one of its durations is
longer than one of the rest in the *same* hour (Mann and Whitney, 1947), each host of the rest weighing the same. Load
that comes and goes with the day is thereby the same for both. The hours of a host are its repetitions.

Hosts that are the same by intent differ a little, too. What counts as different is therefore judged by how hosts spread
(the empirical null; Efron, 2004): the spread of most hosts, taken from the median of the distances, as those that do
differ must not hide themselves by widening it. What the hours of a host say about its own figure is added, so that a
host of which little is known is not found for that. The number of hosts and hours bounds how sure one can be: Student's
distribution, with degrees of freedom by Welch and Satterthwaite.

Groups, such as racks, are compared by the figures of their hosts: a rank test where the host is the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hopscope.model.histogram import SLOTS
from hopscope.model.rank_test import student

if TYPE_CHECKING:
    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"
F64: TypeAlias = "NDArray[np.float64]"

# Fewer hosts have no rest to differ from.
LEAST_HOSTS: Final = 3
# Of a normal distribution, half lies within so many standard deviations.
_HALF: Final = 0.6745
# How much a median of distances is worth of a standard deviation: its efficiency is 0.37, and less where there are few.
_MEDIANS_WORTH: Final = 0.3
# Of so many hosts, half suffice for it.
_MANY: Final = 20
# An hour with so many samples weighs half as much as one with very many.
_HALF_WEIGHT: Final = 30
_MOST_SIMILAR: Final = 0.9
# Variance of a median of n values: so much times theirs, by n.
_MEDIANS_ERROR: Final = 1.571
# One by the variance of a rank among all, 0..1.
_UNIFORM: Final = 12
_HALVINGS: Final = 60


@dataclass(frozen=True, slots=True)
class Durations:
    """Histograms of hosts in blocks of time, sparse: arrays of one length.

    Attributes
    ----------
    host, block
        Their numbers, from 0.
    slot
        Of :mod:`hopscope.model.histogram`.
    samples
        How many.
    hosts, blocks
        How many there are.
    """

    host: I64
    block: I64
    slot: I64
    samples: I64
    hosts: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """What is known of each host; arrays of shape (hosts,).

    Attributes
    ----------
    superiority
        The probability that a duration of the host is longer than one of the rest in the same block, half of ties
        counted; the mean over its blocks. NaN: it has none.
    probability
        That a host which does not differ is as far from the others, or further.
    blocks
        In how many blocks the host was compared.
    """

    superiority: F64
    probability: F64
    blocks: I64


def compare_hosts(durations: Durations) -> Hosts:
    """Compare each host with the rest."""
    return _outlying(*block_scores(durations))


def block_scores(durations: Durations) -> tuple[F64, I64]:
    """Return the superiority of each host over the rest in each block, and its samples: shape (hosts, blocks).

    NaN, and no samples, where the host has nothing, or there are fewer hosts than :data:`LEAST_HOSTS`.
    """
    hosts, blocks = durations.hosts, durations.blocks
    cell = durations.host * blocks + durations.block
    counts = np.bincount(cell, durations.samples, hosts * blocks)
    parts = durations.samples / counts[cell]
    place = durations.block * SLOTS + durations.slot
    samples = counts.reshape(hosts, blocks)
    of_block = (samples > 0).sum(axis=0)
    mixture = np.bincount(place, parts, blocks * SLOTS).reshape(blocks, SLOTS) / np.maximum(of_block, 1)[:, None]
    ridits = np.cumsum(mixture, axis=1) - mixture / 2
    against_all = np.bincount(cell, parts * ridits.reshape(-1)[place], hosts * blocks).reshape(hosts, blocks)
    # A host is one of all, and half as often as not above itself.
    against_rest = (against_all * of_block - 0.5) / np.maximum(of_block - 1, 1)
    counted = (samples > 0) & (of_block >= LEAST_HOSTS)
    return np.where(counted, against_rest, np.nan), np.where(counted, samples, 0)


def _outlying(scores: F64, samples: I64) -> Hosts:
    weights = samples / (samples + _HALF_WEIGHT)
    total = weights.sum(axis=1)
    known = total > 0
    blocks = (weights > 0).sum(axis=1)
    hosts = int(known.sum())
    if hosts < LEAST_HOSTS:
        return Hosts(np.full(len(scores), np.nan), np.ones(len(scores)), blocks)
    superiority = np.full(len(scores), np.nan)
    superiority[known] = np.nansum(scores * weights, axis=1)[known] / total[known]
    compared = weights.any(axis=0)
    # What all hosts have in common in a block is no difference.
    centred = np.nan_to_num(scores[np.ix_(known, compared)] - np.nanmedian(scores[:, compared], axis=0))
    samples, weights = samples[np.ix_(known, compared)], weights[np.ix_(known, compared)]
    figures = (centred * weights).sum(axis=1) / total[known]
    variance, freedom = _variances(centred, samples, weights, figures)
    distance = np.abs(figures - np.median(figures))
    # How hosts spread is seen best where the least is due to chance. A median of distances from a median is too short
    # where there are few, and the median itself is off by some.
    sure = variance <= (np.median(variance) if hosts >= _MANY else np.inf)
    few = int(sure.sum())
    between = _between(distance[sure], variance[sure]) * (few / (few - 0.8)) ** 2
    spread = (between + variance) * (1 + _MEDIANS_ERROR / hosts)
    count = max(_MEDIANS_WORTH * (few - 1), 1.0)
    found = np.where(distance > 0, 0.0, 1.0)
    for host in np.flatnonzero(spread > 0).tolist():
        parts = variance[host] ** 2 / freedom[host] + between**2 / count
        found[host] = student(distance[host] / sqrt(spread[host]), (between + variance[host]) ** 2 / parts)
    probability = np.ones(len(scores))
    probability[known] = found
    return Hosts(superiority, probability, blocks)


def _variances(centred: F64, samples: I64, weights: F64, figures: F64) -> tuple[F64, F64]:
    """Return the variance of each host's figure by how its blocks spread, and the degrees of freedom.

    Few blocks tell little: the variance is at least that of the median host with as many blocks, and what samples by
    chance add to it where there are few.
    """
    total, square = weights.sum(axis=1), (weights**2).sum(axis=1)
    effective = total**2 / square
    residuals = np.where(weights > 0, centred - figures[:, None], 0.0)
    several = (weights > 0).sum(axis=1) > 1
    by_chance = (weights**2 / (_UNIFORM * np.maximum(samples, 1))).sum(axis=1) / square
    usual, worth = 0.0, 1.0
    of_block = (residuals**2 * weights).sum(axis=1) / total * effective / np.maximum(effective - 1, 1)
    if several.any():
        worth = _worth(residuals[several], max(float(np.median(effective[several])), 2.0))
        usual = max(float(np.median(of_block[several] - by_chance[several])), 0.0)
    repetitions = np.maximum(effective * worth, 1.0)
    least = usual + by_chance
    freedom = np.where(of_block > least, np.maximum(repetitions - 1, 1.0), max(float(several.sum()), 1.0))
    return np.maximum(of_block, least) / repetitions, freedom


def _worth(residuals: F64, blocks: float) -> float:
    """Return how much a block is worth of one that does not resemble the block before (Bartlett, 1946)."""
    square = float((residuals**2).sum())
    if not square:
        return 1.0
    similar = float((residuals[:, 1:] * residuals[:, :-1]).sum()) / square
    # Without the bias of short series (Marriott and Pope, 1954).
    similar = min(max(similar + (1 + 3 * similar) / blocks, 0.0), _MOST_SIMILAR)
    return (1 - similar) / (1 + similar)


def _between(distances: F64, variances: F64) -> float:
    """Return the variance between hosts with which half of the distances are as short as half of them should be."""

    def too_wide(between: float) -> bool:
        return float(np.median(distances / np.sqrt(between + variances + 1e-300))) < _HALF

    least, most = 0.0, float((distances / _HALF).max()) ** 2
    if not most or too_wide(0.0):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (least, middle) if too_wide(middle) else (middle, most)
    return most


def compare_group(figures: F64, members: NDArray[np.bool_]) -> tuple[float, float]:
    """Compare the hosts of a group with the others.

    Parameters
    ----------
    figures
        :attr:`Hosts.superiority`; those that are NaN do not count.
    members
        Which of them are of the group.

    Returns
    -------
    tuple of float
        The probability that a duration of a host of the group is longer than one of the other hosts in the same block;
        and that of such ranks, or more extreme ones, if the group were any of the hosts (normal approximation with
        ties, which is too careful for groups of few hosts).
    """
    known = np.isfinite(figures)
    inside, outside = figures[known & members], figures[known & ~members]
    ours, theirs = len(inside), len(outside)
    if not ours or not theirs:
        return float("nan"), 1.0
    everything = ours + theirs
    # Each figure is against all hosts but one: as of the group against all, of which the group itself is a part.
    against_all = float(inside.mean())
    superiority = (against_all * (everything - 1) - 0.5 * (ours - 1)) / theirs
    values, inverse, counts = np.unique(np.concatenate([inside, outside]), return_inverse=True, return_counts=True)
    del values
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    above = float(ranks[:ours].sum()) - ours * (ours + 1) / 2
    ties = float((counts**3 - counts).sum()) / (everything * max(everything - 1, 1))
    variance = ours * theirs / 12 * (everything + 1 - ties)
    if variance <= 0:
        return superiority, 1.0
    distance = max(abs(above - ours * theirs / 2) - 0.5, 0.0)
    return superiority, erfc(distance / sqrt(variance) / sqrt(2))
