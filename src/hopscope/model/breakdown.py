# SPDX-License-Identifier: Apache-2.0
"""What each part of the CPU's work for networking is made of, with its error."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

from hopscope.model.categories import UNSAMPLED
from hopscope.model.classify import Category, classify
from hopscope.model.stacks import part_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.model.stacks import Stack

_Z: Final = 1.959963984540054  # of 95 %


@dataclass(frozen=True, slots=True)
class Share:
    """What a category has of a part.

    Attributes
    ----------
    part, category, detail
        Of what; see :mod:`hopscope.model.categories`.
    samples
        How many were in it.
    of_part
        They, of all samples of the part (0..1).
    low, high
        What that may be with 95 % confidence, by the number of samples (Wilson's interval).
    ns
        This share of the part's exact time. Those of a part sum to it to the nanosecond.
    """

    part: str
    category: str
    detail: str
    samples: int
    of_part: float
    low: float
    high: float
    ns: int


def breakdown(stacks: Iterable[Stack], exact_ns: Mapping[str, int], own: tuple[str, ...] = ()) -> list[Share]:
    """Return the shares of each part, the parts in their order, the largest share first.

    The time of a part that has no sample is one share of the category ``unsampled``: nobody knows what it is made of.

    Parameters
    ----------
    stacks
        Samples; groups are not told apart.
    exact_ns
        Time of each part, measured; 0 for parts that are not in it.
    own
        Beginnings of the names of hopscope's own BPF programs.
    """
    parts: defaultdict[str, Counter[Category]] = defaultdict(Counter)
    parts.update((part, Counter()) for part, ns in exact_ns.items() if ns)
    for stack in stacks:
        parts[stack.part][classify(stack.frames, own)] += stack.samples
    return [
        share for part in sorted(parts, key=part_order) for share in _shares(part, +parts[part], exact_ns.get(part, 0))
    ]


def wilson(samples: int, of: int) -> tuple[float, float]:
    """Return the bounds (0..1) of a proportion with 95 % confidence.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927). It assumes
    that samples are independent of each other.
    """
    if not of:
        return 0.0, 1.0
    part = samples / of
    spread = _Z * sqrt(part * (1 - part) / of + _Z**2 / (4 * of**2))
    middle, scale = part + _Z**2 / (2 * of), 1 + _Z**2 / of
    # At both ends the exact bound is the proportion itself, which rounding may miss.
    low = 0.0 if not samples else (middle - spread) / scale
    high = 1.0 if samples == of else (middle + spread) / scale
    return low, high


def split_ns(total_ns: int, samples: list[int]) -> list[int]:
    """Return the time in whole ns, split as the samples are; the largest remainders get what is left over."""
    of = sum(samples)
    shares = [total_ns * each // of for each in samples]
    by_remainder = sorted(range(len(samples)), key=lambda n: (-(total_ns * samples[n] % of), n))
    for number in by_remainder[: total_ns - sum(shares)]:
        shares[number] += 1
    return shares


def _shares(part: str, counts: Counter[Category], total_ns: int) -> list[Share]:
    of = counts.total()
    if not of:
        return [Share(part, UNSAMPLED, "", 0, 1.0, 0.0, 1.0, total_ns)]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    times_ns = split_ns(total_ns, [samples for _, samples in ordered])
    return [
        Share(part, *category, samples, samples / of, *wilson(samples, of), ns)
        for (category, samples), ns in zip(ordered, times_ns, strict=True)
    ]
