# SPDX-License-Identifier: Apache-2.0
"""Fisher's exact test: whether a property is more, or less, frequent in one of two groups."""

from __future__ import annotations

from math import exp, lgamma


def fisher(ours: int, of_ours: int, theirs: int, of_theirs: int) -> float:
    """Return the probability of so uneven a division, or a less likely one, if groups and property had no relation.

    Parameters
    ----------
    ours, theirs
        How many of each group have the property.
    of_ours, of_theirs
        How many each group has.
    """
    having = ours + theirs

    def logarithm(number: int) -> float:
        return _choose(of_ours, number) + _choose(of_theirs, having - number)

    every = _choose(of_ours + of_theirs, having)
    here = logarithm(ours)
    numbers = range(max(0, having - of_theirs), min(of_ours, having) + 1)
    # Equally likely ones differ by how floating-point numbers are rounded.
    return min(1.0, sum(exp(each - every) for each in map(logarithm, numbers) if each <= here + 1e-7))


def _choose(of: int, number: int) -> float:
    return lgamma(of + 1) - lgamma(number + 1) - lgamma(of - number + 1)
