# SPDX-License-Identifier: Apache-2.0
"""Which hop the time went to.

The hops of one protocol form a chain; those before the protocol is known belong to every chain. A hop's share is its
time over that of all hops of its chain, in its group. Where two chains of a group have samples, nobody knows whose
packets a common hop's time was for: it has no share then, and is not in the shares of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.model.snapshot import COMMON_CHAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.snapshot import HopRow

TOTAL_SUFFIX = "_total"


@dataclass(frozen=True, slots=True)
class Share:
    """A hop's part (0..1) of its chain's time; `largest` marks the hop with the most time of its chain and group."""

    part: float
    largest: bool


def shares(rows: Sequence[HopRow]) -> list[Share | None]:
    """Return each row's share; None for hops that stand alone, and where there is none to tell."""
    result: list[Share | None] = [None] * len(rows)
    for members in _chains(rows):
        total_ns = sum(rows[number].histogram.sum_ns for number in members)
        if not total_ns:
            continue
        top = max(members, key=lambda number: rows[number].histogram.sum_ns)
        for number in members:
            if rows[number].histogram.count:
                result[number] = Share(rows[number].histogram.sum_ns / total_ns, number == top)
    return result


def _chains(rows: Sequence[HopRow]) -> list[list[int]]:
    """Return the row numbers of each group's chains; no row is in two of them."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, row in enumerate(rows):
        if row.chain is not None:
            groups.setdefault(tuple(row.group.items()), []).append(number)
    return [chain for members in groups.values() for chain in _group_chains(rows, members)]


def _group_chains(rows: Sequence[HopRow], members: list[int]) -> list[list[int]]:
    common = [number for number in members if rows[number].chain == COMMON_CHAIN]
    chains: dict[str | None, list[int]] = {}
    for number in members:
        if rows[number].chain != COMMON_CHAIN and rows[number].histogram.count:
            chains.setdefault(rows[number].chain, []).append(number)
    if len(chains) > 1:
        return list(chains.values())
    return [common + own for own in chains.values()] or [common]
