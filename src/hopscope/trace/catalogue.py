# SPDX-License-Identifier: Apache-2.0
"""What a query of a trace can name: its tables, and the relations that are built when a query names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.store.schema import TABLES
from hopscope.trace.relation import aliases, build, relations, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.store.trace import Trace
    from hopscope.trace.relation import Meaning

RECORDED: Final = "recorded"
_NUMBER: Final = "number in this trace"
_VIEWS: Final = {
    "points": ("a probe point", {"point": ("", _NUMBER), "name": ("", "name")}),
    "reasons": ("a reason for dropping a packet", {"reason": ("", _NUMBER), "name": ("", "name")}),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table, a view or a relation.

    Attributes
    ----------
    name
        Name in SQL.
    kind
        ``recorded``, or how the relation is built: ``table`` or ``view``.
    row
        What a row is.
    columns
        Name → unit (empty: none) and meaning.
    report
        The only report that builds it; empty: any query does.
    """

    name: str
    kind: str
    row: str
    columns: Mapping[str, Meaning]
    report: str = ""


def catalogue(trace: Trace) -> dict[str, Entry]:
    """Return name → entry; the tables of the trace first."""
    found = [Entry(name, RECORDED, row, columns) for name, (row, columns) in _VIEWS.items()]
    for table in (*TABLES, *trace.metadata.tables):
        columns = {column.name: (unit_of(column.name), column.meaning) for column in table.columns}
        found.append(Entry(table.name, RECORDED, table.meaning, columns))
    found += [Entry(each.name, each.kind, each.row, each.columns, each.report) for each in relations().values()]
    return {entry.name: entry for entry in found}


def entry_of(trace: Trace, name: str) -> Entry:
    """Return the entry of a name; earlier names of relations are allowed.

    Raises
    ------
    UsageError
        The trace has nothing of that name.
    """
    found = catalogue(trace).get(aliases().get(name, name))
    if found is None:
        raise UsageError(f"{trace.folder} has no table named {name}", "`hopscope sql TRACE --tables` lists them")
    return found


def build_for(trace: Trace, query: str) -> None:
    """Build the relations that a query names, as far as they do not exist.

    Raises
    ------
    UsageError
        The query is wrong.
    """
    named = {name.lower() for name in trace.tables_of(query)}
    build(trace, *sorted(named & {*relations(), *aliases()}))
