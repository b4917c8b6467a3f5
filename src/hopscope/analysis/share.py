# SPDX-License-Identifier: Apache-2.0
"""Which hop the time went to.

The hops of one protocol (``rx.tcp``, ``rx.tcp_queue``, …) form a chain; those before the protocol is known
(``rx.core``, ``rx.ip``) belong to every chain. A hop's share is its time over that of all hops of its chain, in
its group. Where two chains of a group have samples, nobody knows whose packets a common hop's time was
for: it has no share then, and is not in the shares of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.analysis.snapshot import PACKET_UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.analysis.snapshot import HopRow

TOTAL_SUFFIX = "_total"


@dataclass(frozen=True, slots=True)
class Share:
    """A hop's part (0..1) of its chain's time; `largest` marks the hop with the most time of its chain and group."""

    part: float
    largest: bool


def shares(rows: Sequence[HopRow]) -> list[Share | None]:
    """Return each row's share; None for totals, for units other than packets, and where there is none to tell."""
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
    stems = {_stem(row.hop) for row in rows if "_" in row.hop}
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, row in enumerate(rows):
        if row.unit == PACKET_UNIT and not row.hop.endswith(TOTAL_SUFFIX):
            groups.setdefault(tuple(row.group.items()), []).append(number)
    return [chain for members in groups.values() for chain in _group_chains(rows, members, stems)]


def _group_chains(rows: Sequence[HopRow], members: list[int], stems: set[str]) -> list[list[int]]:
    common = [number for number in members if _stem(rows[number].hop) not in stems]
    by_stem: dict[str, list[int]] = {}
    for number in members:
        stem = _stem(rows[number].hop)
        if stem in stems and rows[number].histogram.count:
            by_stem.setdefault(stem, []).append(number)
    if len(by_stem) > 1:
        return list(by_stem.values())
    return [common + own for own in by_stem.values()] or [common]


def _stem(hop: str) -> str:
    return hop.partition("_")[0]
