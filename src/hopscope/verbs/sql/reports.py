# SPDX-License-Identifier: Apache-2.0
"""Reports of ``sql``: the result of a query, what a query can name, and the columns of one of these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows
from hopscope.trace.catalogue import build_for, catalogue, entry_of
from hopscope.trace.relation_columns import FLOW_NUMBERS

if TYPE_CHECKING:
    import numpy as np

    from hopscope.model.report import Unit
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
_NUMBERS: Final = "biuf"


def query_report(trace: Trace, query: str, *, limit: int | None = None) -> Report:
    """Return what a query gives; numbers are shown as they are, whatever their names say, but for those of flows.

    Raises
    ------
    UsageError
        The query is wrong.
    """
    text = re.sub(r"[;\s]+\Z", "", query)
    build_for(trace, text)
    with trace.by_user():
        found = trace.columns(text)
    rows = len(next(iter(found.values()), ()))
    shown = rows if limit is None else min(limit, rows)
    values = {name: array[:shown] for name, array in found.items()}
    columns = [Column(name, _unit(name, array.dtype), "", name) for name, array in values.items()]
    return Report("sql", columns, values, left_out=rows - shown)


def listed(trace: Trace) -> Report:
    """Return a row for each table and relation."""
    return of_rows("tables", LISTED, [[each.name, each.kind, each.row] for each in catalogue(trace).values()])


def described(trace: Trace, name: str) -> Report:
    """Return a row for each column of a table or relation.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    columns = entry_of(trace, name).columns
    return of_rows("columns", DESCRIBED, [[column, *described] for column, described in columns.items()])


def _unit(name: str, dtype: np.dtype[np.generic]) -> Unit:
    if dtype.kind not in _NUMBERS:
        return "text"
    return "id" if name in FLOW_NUMBERS else "number"
