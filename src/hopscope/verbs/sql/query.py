# SPDX-License-Identifier: Apache-2.0
"""The result of a user's own query, as a report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report
from hopscope.trace.relation import aliases, build, relations

if TYPE_CHECKING:
    import numpy as np

    from hopscope.model.report import Unit
    from hopscope.store.trace import Trace

_NUMBERS: Final = "biuf"


def query_report(trace: Trace, query: str, *, limit: int | None = None) -> Report:
    """Return what a query gives; numbers are shown as they are, whatever their names say.

    Raises
    ------
    UsageError
        The query is wrong.
    """
    text = re.sub(r"[;\s]+\Z", "", query)
    named = {name.lower() for name in trace.tables_of(text)}
    build(trace, *sorted(named & {*relations(), *aliases()}))
    found = trace.columns(text)
    rows = len(next(iter(found.values()), ()))
    shown = rows if limit is None else min(limit, rows)
    values = {name: array[:shown] for name, array in found.items()}
    columns = [Column(name, _unit(array.dtype), "", name) for name, array in values.items()]
    return Report("sql", columns, values, left_out=rows - shown)


def _unit(dtype: np.dtype[np.generic]) -> Unit:
    return "number" if dtype.kind in _NUMBERS else "text"
