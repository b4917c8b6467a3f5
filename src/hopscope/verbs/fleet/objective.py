# SPDX-License-Identifier: Apache-2.0
"""Which share of durations is above a limit, with exact bounds: how much of an error budget is used."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.histogram import OVERFLOW_SLOT, thresholds_ns
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.fleet.fleet import text
from hopscope.verbs.fleet.questions import HOST, absences, groups, heading, hops, host_names, three

if TYPE_CHECKING:
    from hopscope.store.fleet.fleet import Fleet

ALL: Final = "all"
COLUMNS: Final = (
    Column("group", "text", "the host, or the value of what hosts are grouped by; `all`: of all", "group"),
    Column("hop", "text", "hop", "hop"),
    Column("count", "count", "number of durations", "count"),
    Column("above_least", "count", "number of durations that are certainly above the limit", "above ≥", rank=1),
    Column(
        "above_most", "count", "number of durations that may be above it: with those of its bucket", "above ≤", rank=1
    ),
    Column("share_least", "ratio", "share that is certainly above", "share ≥"),
    Column("share_most", "ratio", "share that may be above", "share ≤"),
    Column(
        "budget_least", "ratio", "share of the error budget that is certainly used; above 1, it is exceeded", "budget ≥"
    ),
    Column("budget_most", "ratio", "share of the error budget that may be used", "budget ≤"),
    Column("hosts", "count", "number of hosts", "hosts", rank=2),
)
TARGET: Final = 99.9


def objective(  # noqa: PLR0913 # one parameter an option
    fleet: Fleet, *, hop: str, limit_ns: int, by: str | None = None, target: float = TARGET, limit: int | None = None
) -> Report:
    """Return the share of durations above a limit, of all and of each group, those with the highest share first.

    Parameters
    ----------
    target
        Per cent that are to be below the limit; the rest is the error budget.

    Raises
    ------
    UsageError
        There is no such hop, or no such grouping.
    """
    (name,) = hops(fleet, hop)
    thresholds = thresholds_ns()
    inside = bisect_left(thresholds, limit_ns)
    # Durations of the slot that ends exactly at the limit are not above it.
    exact = inside < OVERFLOW_SLOT and thresholds[inside] == limit_ns
    fleet.make_table(
        "above",
        f"SELECT host, CAST(sum(count) AS BIGINT) AS count,"
        " CAST(sum(certain) AS BIGINT) AS least,"
        # Where the longest of an hour is not above the limit, none is. It may be stated too long, by a bucket's width.
        f" CAST(sum(CASE WHEN max_ns > {limit_ns} THEN certain + {0 if exact else 1} * possible ELSE 0 END) AS BIGINT)"
        " AS most FROM (SELECT host, count, max_ns,"
        f" list_sum(list_filter(counts, lambda n, i: slots[i] > {inside})) AS certain_,"
        f" list_sum(list_filter(counts, lambda n, i: slots[i] = {inside})) AS possible_,"
        " coalesce(certain_, 0) AS certain, coalesce(possible_, 0) AS possible"
        f" FROM hop_hours WHERE hop = {text(name)}) GROUP BY host",
    )
    found = {host: figures for host, *figures in fleet.rows("SELECT host, count, least, most FROM above")}
    rows = [_row(ALL, name, list(found.values()), target)]
    left_out = 0
    if by:
        of_hosts = groups(fleet, by, host_names(fleet)) if by != HOST else {host: host for host in found}
        members: dict[str, list[list[int]]] = {}
        for host, figures in found.items():
            if host in of_hosts:
                members.setdefault(of_hosts[host], []).append(figures)
        each = sorted(
            (_row(group, name, figures, target) for group, figures in members.items()),
            key=lambda row: (-row[6], -row[5], row[0]),
        )
        rows += each[:limit]
        left_out = len(each) - len(each[:limit])
    return of_rows("fleet.objective", COLUMNS, rows, notes=absences(fleet), left_out=left_out, heading=heading(fleet))


def _row(group: str, hop: str, figures: list[list[int]], target: float) -> tuple[Any, ...]:
    count, least, most = (sum(each[place] for each in figures) for place in range(3))
    allowed = (100 - target) / 100
    shares = [each / count if count else 0.0 for each in (least, most)]
    budgets = [each / allowed if allowed else float("inf") for each in shares]
    return group, hop, count, least, most, *map(three, (*shares, *budgets)), len(figures)
