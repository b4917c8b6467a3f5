# SPDX-License-Identifier: Apache-2.0
"""Who drops packets, where and why: rates over the time in which drops were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.fleet.schema import NS_OF_MINUTE, OF_DROPS
from hopscope.verbs.fleet.questions import HOST, absences, groups, heading, host_names, three

if TYPE_CHECKING:
    from hopscope.store.fleet.fleet import Fleet

COLUMNS: Final = (
    Column("group", "text", "the host, or the value of what hosts are grouped by", "group"),
    Column("reason", "text", "the kernel's drop reason", "reason"),
    Column("place", "text", "function of the kernel in which they were dropped", "where"),
    Column("drops", "count", "number of packets", "drops"),
    Column("per_s", "per_s", "packets a second and host, over the time in which drops were recorded", "per s"),
    Column("ratio", "ratio", "of that rate and the one of all other hosts; none: they had none", "ratio", rank=1),
    Column("hosts", "count", "number of hosts in the group that dropped any", "hosts", rank=1),
    Column("of_hosts", "count", "number of hosts in the group on which drops were recorded", "of", rank=2),
    Column(
        "coverage",
        "part",
        "which part of the time asked for drops were recorded in, over these hosts",
        "coverage",
        rank=2,
    ),
)
_NS: Final = 10**9


def drops(fleet: Fleet, *, by: str = HOST, limit: int | None = None) -> Report:
    """Return a row for each group, reason and place, the highest rate first.

    Raises
    ------
    UsageError
        No host recorded drops, or there is no such grouping.
    """
    measured = {
        host: int(ns)
        for host, ns in fleet.rows(
            f"SELECT host, CAST(sum(measured_ns) AS BIGINT) FROM minutes"
            f" WHERE list_contains(string_split(measured, ' '), '{OF_DROPS}') GROUP BY host HAVING sum(measured_ns) > 0"
        )
    }
    if not measured:
        raise UsageError(
            f"{fleet.shown}: no host recorded drops in that time", "`hopscope record -P drops` records them"
        )
    of_hosts = {host: group for host, group in groups(fleet, by, host_names(fleet)).items() if host in measured}
    time_ns: dict[str, int] = {}
    members: dict[str, int] = {}
    for host, group in of_hosts.items():
        time_ns[group] = time_ns.get(group, 0) + measured[host]
        members[group] = members.get(group, 0) + 1
    total_ns = sum(measured.values())
    found: dict[tuple[str, str, str], list[int]] = {}
    everywhere: dict[tuple[str, str], int] = {}
    for host, reason, place, count in fleet.rows(
        "SELECT host, reason, place, CAST(sum(count) AS BIGINT) FROM drops GROUP BY ALL"
    ):
        if host in measured:
            everywhere[reason, place] = everywhere.get((reason, place), 0) + count
        if host in of_hosts:
            figures = found.setdefault((of_hosts[host], reason, place), [0, 0])
            figures[0] += count
            figures[1] += 1
    asked_ns = len(fleet.hours) * 60 * NS_OF_MINUTE
    rows = []
    for (group, reason, place), (count, hosts) in found.items():
        rate = count / time_ns[group] * _NS
        rest_ns = total_ns - time_ns[group]
        rest = (everywhere[reason, place] - count) / rest_ns * _NS if rest_ns else 0.0
        ratio = three(rate / rest if rest else None)
        coverage = min(time_ns[group] / (asked_ns * members[group]), 1.0)
        rows.append((group, reason, place, count, rate, ratio, hosts, members[group], coverage))
    rows.sort(key=lambda row: (-row[4], row[:3]))
    notes = absences(fleet)
    without = len(host_names(fleet)) - len(measured)
    if without:
        notes.append(
            f"drops were not recorded on {without:,} of {without + len(measured):,} hosts, which are not among these"
        )
    if not rows:
        notes.insert(0, f"no packet was dropped on the {len(measured):,} hosts that recorded drops")
    return of_rows(
        "fleet.drops",
        COLUMNS,
        rows[:limit],
        notes=notes,
        left_out=len(rows) - len(rows[:limit]),
        heading=heading(fleet),
    )
