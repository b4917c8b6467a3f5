# SPDX-License-Identifier: Apache-2.0
"""What is in a fleet's directory: each boot of each host, what it is, and when it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.store.fleet.fleet import text, text_of_minute
from hopscope.store.fleet.schema import DRIVER, KERNEL, NS_OF_MINUTE, PROGRAM
from hopscope.term.format import plural
from hopscope.verbs.fleet.questions import heading

if TYPE_CHECKING:
    from hopscope.store.fleet.fleet import Fleet

COLUMNS: Final = (
    Column("host", "text", "name of the host", "host"),
    Column("boot", "text", "ID of its boot", "boot", rank=4),
    Column("kernel", "text", "release of its kernel", "kernel", rank=2),
    Column("driver", "text", "drivers of its NICs", "driver", rank=2),
    Column("hopscope", "text", "version that measured", "hopscope", rank=3),
    Column("from", "text", "first minute that was measured, UTC, by the host's clock", "from"),
    Column("until", "text", "last minute that was measured", "until"),
    Column("minutes", "count", "number of minutes that were measured, in part at least", "minutes"),
    Column(
        "absent",
        "count",
        "number of minutes that were not measured since the host's boot before, or since its first minute",
        "absent",
    ),
    Column("coverage", "part", "which part of the time from the first minute to the last was measured", "coverage"),
    Column("count", "count", "number of durations, over all hops", "samples", rank=1),
    Column("lost", "count", "number of lost events", "lost", rank=1),
)

_QUERY: Final = f"""
    WITH boots AS (
        SELECT host, boot, min(minute) AS first, max(minute) AS last, count(DISTINCT minute) AS minutes,
               sum(measured_ns) AS measured_ns, CAST(sum(lost) AS BIGINT) AS lost
        FROM minutes GROUP BY host, boot),
    known AS (SELECT host, boot, name, arg_max(value, minute) AS value FROM facts
              WHERE name IN ({", ".join(map(text, (KERNEL, DRIVER, PROGRAM)))}) GROUP BY ALL),
    counted AS (SELECT host, boot, CAST(sum(count) AS BIGINT) AS count FROM hop_hours GROUP BY ALL),
    ordered AS (
        SELECT *, max(last) OVER (PARTITION BY host ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
               AS before
        FROM boots)
    SELECT b.host, b.boot,
           {
    ", ".join(
        f"(SELECT any_value(value) FROM known k WHERE k.host = b.host AND k.boot = b.boot AND name = {text(name)})"
        for name in (KERNEL, DRIVER, PROGRAM)
    )
},
           first, last, minutes, greatest(last - coalesce(least(before + 1, first), first) + 1 - minutes, 0),
           least(measured_ns / ((last - first + 1) * {NS_OF_MINUTE}.0), 1), coalesce(c.count, 0), lost
    FROM ordered b LEFT JOIN counted c ON c.host = b.host AND c.boot = b.boot
    ORDER BY b.host, first"""


def hosts(fleet: Fleet, *, limit: int | None = None) -> Report:
    """Return a row for each boot of each host."""
    found = fleet.rows(_QUERY)
    names = {row[0] for row in found}
    rows = [(*row[:5], text_of_minute(row[5]), text_of_minute(row[6]), *row[7:]) for row in found[:limit]]
    return of_rows(
        "fleet.hosts",
        COLUMNS,
        rows,
        notes=fleet.notes,
        left_out=len(found) - len(rows),
        heading=[*heading(fleet)[:1], f"{plural(len(names), 'host')}, {plural(len(found), 'boot')}", ""],
    )
