# SPDX-License-Identifier: Apache-2.0
"""What hosts have in common that the others have not: kernel, driver, settings, labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.fisher import fisher
from hopscope.model.rank_test import benjamini_hochberg
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.fleet.fleet import text
from hopscope.term.format import plural
from hopscope.verbs.fleet.chance import FALSE_RATE
from hopscope.verbs.fleet.questions import absences, check_hosts, heading, three

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.fleet.fleet import Fleet

COLUMNS: Final = (
    Column(
        "fact", "text", "what is said of the hosts: kernel, driver, a label, or a setting (docs/counters.md)", "fact"
    ),
    Column("value", "text", "its value", "value"),
    Column("share", "part", "which part of these hosts has that value", "these"),
    Column("others_share", "part", "which part of the other hosts has it", "others"),
    Column("these", "count", "number of these hosts that have it", "n", rank=1),
    Column("of_these", "count", "number of these hosts of which the fact is known", "of", rank=1),
    Column("others", "count", "number of other hosts that have it", "others' n", rank=2),
    Column("of_others", "count", "number of other hosts of which the fact is known", "of", rank=2),
    Column("false_rate", "ratio", "false discovery rate at which this is found (Fisher, Benjamini-Hochberg)", "FDR"),
)
_QUERY: Final = """
    WITH known AS (
        SELECT host, name, arg_max(value, minute) AS value FROM facts GROUP BY host, name
        UNION ALL SELECT host, name, value FROM labels WHERE host IN (SELECT DISTINCT host FROM minutes)),
    marked AS (SELECT *, host IN ({hosts}) AS ours FROM known),
    totals AS (SELECT name, count(*) FILTER (ours) AS of_ours, count(*) FILTER (NOT ours) AS of_theirs,
                      count(DISTINCT value) AS values FROM marked GROUP BY name)
    SELECT m.name, m.value, count(*) FILTER (m.ours), t.of_ours, count(*) FILTER (NOT m.ours), t.of_theirs
    FROM marked m JOIN totals t ON t.name = m.name
    WHERE t.of_ours > 0 AND t.of_theirs > 0 AND t.values > 1
    GROUP BY m.name, m.value, t.of_ours, t.of_theirs ORDER BY m.name, m.value"""


def common(fleet: Fleet, *, hosts: Sequence[str], false_rate: float = FALSE_RATE, limit: int | None = None) -> Report:
    """Return facts that these hosts have and others have not, the largest difference first.

    Raises
    ------
    UsageError
        One is not there, they are all, or nothing is known of them.
    """
    check_hosts(fleet, hosts)
    found = fleet.rows(_QUERY.format(hosts=", ".join(map(text, hosts))))
    ((others,),) = fleet.rows(
        f"SELECT count(DISTINCT host) FROM minutes WHERE host NOT IN ({', '.join(map(text, hosts))})"
    )
    if not others:
        raise UsageError("There are no other hosts to compare with", "Name only those that have something in common")
    rates = benjamini_hochberg([fisher(*row[2:]) for row in found])
    rows = [
        (name, value, ours / of_ours, theirs / of_theirs, ours, of_ours, theirs, of_theirs, three(rate))
        for (name, value, ours, of_ours, theirs, of_theirs), rate in zip(found, rates, strict=True)
        # A value that the others have more often is another one that these have.
        if rate <= false_rate and ours / of_ours > theirs / of_theirs
    ]
    rows.sort(key=lambda row: (row[3] - row[2], row[8], row[0]))
    notes = absences(fleet)
    if not rows:
        notes.insert(
            0,
            f"nothing is more frequent among these hosts than among the others, of {plural(len(found), 'value')}, at a"
            f" false discovery rate of {false_rate:g}"
            if found
            else "no facts differ between hosts, or none are known",
        )
    return of_rows(
        "fleet.common",
        COLUMNS,
        rows[:limit],
        notes=notes,
        left_out=len(rows) - len(rows[:limit]),
        heading=[*heading(fleet)[:1], f"{plural(len(hosts), 'host')}, and {plural(others, 'other')}", ""],
    )
