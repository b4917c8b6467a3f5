# SPDX-License-Identifier: Apache-2.0
"""Which hosts, or groups of hosts, have a hop that differs from the rest (:mod:`hopscope.model.blocked_ranks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.blocked_ranks import LEAST_HOSTS, compare_group, compare_hosts
from hopscope.model.histogram import SLOTS
from hopscope.model.rank_test import benjamini_hochberg
from hopscope.model.report import Column, Report, of_rows
from hopscope.term.format import plural
from hopscope.verbs.fleet.chance import FALSE_RATE, LEAST_DELTA
from hopscope.verbs.fleet.questions import (
    HOST,
    absences,
    durations,
    groups,
    heading,
    histogram,
    hops,
    host_names,
    three,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.model.blocked_ranks import Durations
    from hopscope.store.fleet.fleet import Fleet

COLUMNS: Final = (
    Column("group", "text", "the host, or the value of what hosts are grouped by", "group"),
    Column("hop", "text", "hop that differs", "hop"),
    Column(
        "delta",
        "ratio",
        "Cliff's delta: of a hundred pairs of one of its durations and one of the rest in the same hour, how many more"
        " have the longer one here, divided by a hundred; -1..1",
        "delta",
    ),
    Column(
        "superiority", "part", "probability that its duration is the longer one, half of ties counted", "longer", rank=3
    ),
    Column("median_ns", "ns", "median duration", "p50"),
    Column("rest_median_ns", "ns", "median duration of the rest in the same time", "rest's p50"),
    Column("ratio", "ratio", "of both medians; each may be off by 9 %, the width of a bucket", "ratio"),
    Column("hosts", "count", "number of hosts in the group", "hosts", rank=2),
    Column("hours", "count", "in how many hours they were compared", "hours", rank=2),
    Column("count", "count", "number of samples", "count", rank=1),
    Column("false_rate", "ratio", "false discovery rate at which this is found (Benjamini-Hochberg)", "FDR", rank=1),
)


class Found(NamedTuple):
    """A group of hosts with a hop that differs.

    Attributes
    ----------
    hosts
        Their numbers, of which `of_hosts` were compared, in at most so many hours.
    """

    group: str
    hop: str
    superiority: float
    hosts: NDArray[np.int64]
    of_hosts: int
    hours: int
    false_rate: float = 1.0


def differing(
    fleet: Fleet, *, hop: str | None, by: str, false_rate: float, least_delta: float
) -> tuple[list[Found], int]:
    """Return what differs, the largest effect first, and the number of comparisons; a hop is in memory at a time.

    Raises
    ------
    UsageError
        There are too few hosts, no such hop, or no such grouping.
    """
    names = host_names(fleet)
    if len(names) < LEAST_HOSTS:
        raise UsageError(
            f"{fleet.shown} has {plural(len(names), 'host')} in that time, and {LEAST_HOSTS} are needed to tell which"
            " differs from the rest",
            "Give more time with --from, or add hosts",
        )
    numbers = {name: number for number, name in enumerate(names)}
    of_hosts = groups(fleet, by, names)
    found: list[Found] = []
    probabilities: list[float] = []
    for each in hops(fleet, hop):
        hosts = compare_hosts(durations(fleet, each, numbers))
        for group, members in _members(of_hosts, numbers).items():
            if by == HOST:
                superiority, probability = hosts.superiority[members[0]], hosts.probability[members[0]]
            else:
                inside = np.zeros(len(names), np.bool_)
                inside[members] = True
                superiority, probability = compare_group(hosts.superiority, inside)
            if np.isfinite(superiority):
                blocks = hosts.blocks[members]
                found.append(
                    Found(group, each, float(superiority), members, int((blocks > 0).sum()), int(blocks.max()))
                )
                probabilities.append(float(probability))
    rates = benjamini_hochberg(probabilities)
    kept = [
        each._replace(false_rate=rate)
        for each, rate in zip(found, rates, strict=True)
        if rate <= false_rate and abs(_delta(each)) >= least_delta
    ]
    return sorted(kept, key=lambda each: (-abs(_delta(each)), each.group, each.hop)), len(found)


def differs(  # noqa: PLR0913 # one parameter an option
    fleet: Fleet,
    *,
    hop: str | None = None,
    by: str = HOST,
    false_rate: float = FALSE_RATE,
    least_delta: float = LEAST_DELTA,
    limit: int | None = None,
) -> Report:
    """Return which groups of hosts have a hop that differs from the rest, the largest effect first."""
    found, comparisons = differing(fleet, hop=hop, by=by, false_rate=false_rate, least_delta=least_delta)
    shown = found[:limit]
    numbers = {name: number for number, name in enumerate(host_names(fleet))}
    rows: dict[int, tuple[Any, ...]] = {}
    for name in dict.fromkeys(each.hop for each in shown):
        measured = durations(fleet, name, numbers)
        rows |= {place: _row(each, measured) for place, each in enumerate(shown) if each.hop == name}
    notes = absences(fleet)
    if not comparisons:
        notes.insert(0, f"all hosts have the same {by}, or nothing is known of it: there is nothing to compare")
    elif not found:
        notes.insert(
            0,
            f"no {by} differs: none of {plural(comparisons, 'comparison')} has an effect of at least {least_delta:g} at"
            f" a false discovery rate of {false_rate:g}",
        )
    return of_rows(
        "fleet.differs",
        COLUMNS,
        [rows[place] for place in range(len(shown))],
        notes=notes,
        left_out=len(found) - len(shown),
        heading=[*heading(fleet)[:1], f"{comparisons:,} comparisons", ""],
    )


def _members(of_hosts: dict[str, str], numbers: dict[str, int]) -> dict[str, NDArray[np.int64]]:
    found: dict[str, list[int]] = {}
    for name, group in sorted(of_hosts.items()):
        found.setdefault(group, []).append(numbers[name])
    return {group: np.array(members) for group, members in found.items()}


def _delta(found: Found) -> float:
    return 2 * found.superiority - 1


def _row(found: Found, measured: Durations) -> tuple[Any, ...]:
    inside = np.isin(measured.host, found.hosts)
    # Of the hours in which both were measured, as the test is.
    blocks = np.intersect1d(measured.block[inside], measured.block[~inside])
    seen = np.isin(measured.block, blocks)
    medians = [
        histogram(np.bincount(measured.slot[which], measured.samples[which], SLOTS).astype(np.int64)).percentile(50)
        for which in (inside & seen, ~inside & seen)
    ]
    ours, rest = medians
    return (
        found.group,
        found.hop,
        three(_delta(found)),
        three(found.superiority),
        ours,
        rest,
        three(ours / rest if ours and rest else None),
        found.of_hosts,
        found.hours,
        int(measured.samples[inside].sum()),
        three(found.false_rate),
    )
