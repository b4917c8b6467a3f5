# SPDX-License-Identifier: Apache-2.0
"""The tables of a fleet directory, as data: each column's type and meaning.

Histograms are sparse: the slots of :mod:`hopscope.model.histogram` that have samples, and their counts, as two lists in
the row of a minute. Measured with 100 hosts, 60 minutes and 8 hops of 5,000 samples in 53 slots each:

========================================  =============  ===============  =================
form                                      bytes per row  time to write    time to add it up
========================================  =============  ===============  =================
a row per slot                            75.6           0.46 s           0.05 s
two lists per row (this one)              63.5           0.15 s           0.08 s
a list from the first slot to the last    58.7           0.10 s           0.07 s
========================================  =============  ===============  =================

The last is smaller by a twelfth, and every query on it would have to count slots from the first. A row per slot would
make 600 million rows of a day of 1,000 hosts. A question on a day reads none of the minutes: each batch also has the
sums of its hours, a sixtieth of the rows.

Rows add up: several rows of one host, boot and minute are parts of it, such as of a service that was started again in
that minute. Hours are numbered since 1970, as minutes are, by the host's own CLOCK_REALTIME.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERSION: Final = 1

MINUTES_OF_HOUR: Final = 60
HOURS_OF_DAY: Final = 24
NS_OF_MINUTE: Final = 60 * 10**9


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in SQL, and what it says."""

    name: str
    sql: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a Parquet file in each batch that has rows of it.

    Attributes
    ----------
    name
        Of the file, and of the view in SQL.
    meaning
        What a row is.
    columns
        In the order of the file.
    order
        By which its rows are sorted, so that they compress well and a host's are together.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)


_BOOT: Final = (
    Column("host", "VARCHAR", "name of the host"),
    Column("boot", "VARCHAR", "ID of its boot; after a reboot it is another one"),
)
_MINUTE: Final = Column("minute", "INTEGER", "since 1970-01-01 00:00 UTC, by the host's CLOCK_REALTIME")
_HOP: Final = (
    *_BOOT,
    Column(
        "hop", "VARCHAR", "name of the hop, such as rx.tcp_wake, or FROM:TO of a recording; `message`: send to read"
    ),
    Column("labels", "VARCHAR", "of the group, such as interface=eth0; empty: all"),
)
_FIGURES: Final = (
    Column("count", "BIGINT", "number of samples"),
    Column("sum_ns", "BIGINT", "total duration"),
    Column("max_ns", "BIGINT", "longest duration"),
    Column("lost", "BIGINT", "events of the host that were lost meanwhile"),
    Column("coverage", "FLOAT", "which part of the time, times which part of the packets, was measured: 0..1"),
    Column("slots", "SMALLINT[]", "slots that have samples, ascending (hopscope.model.histogram)"),
    Column("counts", "BIGINT[]", "samples in each of these slots"),
)
_HOP_ORDER: Final = ("hop", "labels", "host", "boot")

HOP_MINUTES: Final = Table(
    "hop_minutes", "the durations of a hop in a minute", (*_HOP, _MINUTE, *_FIGURES), (*_HOP_ORDER, "minute")
)
HOP_HOURS: Final = Table(
    "hop_hours",
    "the durations of a hop in an hour: sums of `hop_minutes`",
    (
        *_HOP,
        Column("hour", "INTEGER", "since 1970-01-01 00:00 UTC"),
        Column("minutes", "INTEGER", "number of rows of `hop_minutes`"),
        *_FIGURES,
    ),
    (*_HOP_ORDER, "hour"),
)
MINUTES: Final = Table(
    "minutes",
    "a minute in which something was measured; one that has no row was not measured",
    (
        *_BOOT,
        _MINUTE,
        Column("measured_ns", "BIGINT", "which part of the minute was measured"),
        Column("measured", "VARCHAR", "what was measured: hops, drops, or both, with a space between"),
        Column("lost", "BIGINT", "lost events"),
    ),
    ("host", "boot", "minute"),
)
DROPS: Final = Table(
    "drops",
    "dropped packets in a minute, by reason and place",
    (
        *_BOOT,
        _MINUTE,
        Column("reason", "VARCHAR", "the kernel's drop reason"),
        Column("place", "VARCHAR", "function of the kernel in which they were dropped"),
        Column("count", "BIGINT", "number of packets"),
    ),
    ("host", "boot", "reason", "place", "minute"),
)
FACTS: Final = Table(
    "facts",
    "what is true of a boot of a host from that minute on",
    (
        *_BOOT,
        _MINUTE,
        Column("name", "VARCHAR", "kernel, driver, or source, subject and name of a setting (docs/counters.md)"),
        Column("value", "VARCHAR", "its value"),
    ),
    ("name", "value", "host", "boot", "minute"),
)
TABLES: Final = (HOP_MINUTES, HOP_HOURS, MINUTES, DROPS, FACTS)
BY_NAME: Final = {table.name: table for table in TABLES}

# Names of facts that questions group by; a host has one value of each at a time.
KERNEL: Final = "kernel"
DRIVER: Final = "driver"
PROGRAM: Final = "hopscope"
# What `minutes.measured` can have.
OF_HOPS: Final = "hops"
OF_DROPS: Final = "drops"

# Adds rows of histograms up by `{keys}`, which are expressions with names; exact, as integers are.
_ADDED: Final = """
    SELECT * FROM (
        SELECT {keys}, CAST({minutes} AS INTEGER) AS minutes, CAST(sum(count) AS BIGINT) AS count,
               CAST(sum(sum_ns) AS BIGINT) AS sum_ns, max(max_ns) AS max_ns, CAST(sum(lost) AS BIGINT) AS lost,
               CAST(sum({coverage}) AS FLOAT) AS coverage
        FROM {source} GROUP BY ALL) figures
    JOIN (
        SELECT {names}, list(slot ORDER BY slot) AS slots, list(samples ORDER BY slot) AS counts FROM (
            SELECT {names}, slot, CAST(sum(samples) AS BIGINT) AS samples
            FROM (SELECT {keys}, unnest(slots) AS slot, unnest(counts) AS samples FROM {source}) GROUP BY ALL)
        GROUP BY ALL) histograms
    USING ({names})"""


def hours_of_minutes(source: str) -> str:
    """Return the query for the rows of `hop_hours` that rows of `hop_minutes` make, a relation."""
    return _added(source, f"minute // {MINUTES_OF_HOUR} AS hour", "count(*)", f"coverage / {MINUTES_OF_HOUR}")


def hours_of_hours(source: str) -> str:
    """Return the query for one row of `hop_hours` an hour of several, a relation's."""
    return _added(source, "hour", "sum(minutes)", "coverage")


def _added(source: str, hour: str, minutes: str, coverage: str) -> str:
    names = ", ".join(column.name for column in _HOP)
    query = _ADDED.format(
        keys=f"{names}, {hour}", names=f"{names}, hour", minutes=minutes, coverage=coverage, source=source
    )
    return f"SELECT {', '.join(HOP_HOURS.names)} FROM ({query})"


def page() -> str:
    """Return the tables and their columns in Markdown, as docs/fleet.md has them."""
    lines = []
    for table in TABLES:
        lines += [f"**`{table.name}`**: {table.meaning}.", "", "| column | type | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{each.name}` | {each.sql} | {each.meaning} |" for each in table.columns]
        lines.append("")
    return "\n".join(lines)
