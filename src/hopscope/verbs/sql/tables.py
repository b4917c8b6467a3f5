# SPDX-License-Identifier: Apache-2.0
"""What a query can name: the tables of a trace and the relations over it, and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.report import Column, Report, of_rows
from hopscope.store.schema import TABLES
from hopscope.trace.relation import aliases, relations, unit_of

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

LISTED: Final = (
    Column("name", "text", "name of the table or view", "name"),
    Column("kind", "text", "recorded: a table of the trace; table or view: derived when a query names it", "kind"),
    Column("row", "text", "what a row represents", "a row is"),
)
DESCRIBED: Final = (
    Column("column", "text", "name", "column"),
    Column("unit", "text", "unit of the value; empty: none", "unit"),
    Column("meaning", "text", "meaning", "meaning"),
)
# Views that each trace has besides its tables: what a row is, and the columns.
_NUMBERS: Final = {
    "points": ("a probe point", {"point": "number in this trace", "name": "name"}),
    "reasons": ("a reason for dropping a packet", {"reason": "number in this trace", "name": "name"}),
}


def listed(trace: Trace) -> Report:
    """Return a row for each table and relation."""
    rows = [[table.name, "recorded", table.meaning] for table in (*TABLES, *trace.metadata.tables)]
    rows += [[name, "recorded", row] for name, (row, _) in _NUMBERS.items()]
    rows += [[each.name, each.kind, each.row] for each in relations().values()]
    return of_rows("tables", LISTED, rows)


def described(trace: Trace, name: str) -> Report:
    """Return a row for each column of a table or relation.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    return of_rows("columns", DESCRIBED, _columns(trace, name))


def _columns(trace: Trace, name: str) -> list[list[str]]:
    name = aliases().get(name, name)
    if name in relations():
        return [[column, unit, meaning] for column, (unit, meaning) in relations()[name].columns.items()]
    if name in _NUMBERS:
        return [[column, "", meaning] for column, meaning in _NUMBERS[name][1].items()]
    for table in (*TABLES, *trace.metadata.tables):
        if table.name == name:
            return [[column.name, unit_of(column.name), column.meaning] for column in table.columns]
    raise UsageError(f"{trace.folder} has no table named {name}", "`hopscope sql TRACE --tables` lists them")
