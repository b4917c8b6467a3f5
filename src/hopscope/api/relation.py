# SPDX-License-Identifier: Apache-2.0
"""Rows of a recording: a table of it, what is made of its tables, or the result of a query."""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hopscope.errors import UsageError
from hopscope.trace.catalogue import build_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace


class Relation:
    """Rows of a recording; nothing is read before it is asked for.

    Objects come from :class:`~hopscope.Recording`. Each of the methods runs the query anew. Rows are in no order unless
    the query has one. Integers are 64 bits at most, times are nanoseconds of CLOCK_MONOTONIC of the recording host
    where a column's name ends with ``_ns``; docs/trace.md describes every column.

    Attributes
    ----------
    name : str
        Of the relation; ``sql`` if it is a query's result.
    row : str
        What a row is; empty for a query's result.
    columns : list of str
        Their names, in order.
    """

    def __init__(self, opened: Callable[[], Trace], query: str, *, name: str = "sql", row: str = "") -> None:
        self.name = name
        self.row = row
        self._opened = opened
        self._query = re.sub(r"[;\s]+\Z", "", query)
        if not self._query:
            raise UsageError("There is no query", "Give one, such as SELECT count(*) FROM packets")
        with self._ready() as trace:
            self.columns = trace.names(self._query)

    def __repr__(self) -> str:
        return f"<hopscope.Relation {self.name}: {', '.join(self.columns)}>"

    def __len__(self) -> int:
        """Return the number of rows, which is counted for it."""
        with self._ready() as trace:
            return int(trace.rows(f"SELECT count(*) FROM ({self._query})")[0][0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows, as :meth:`rows` has them."""
        return iter(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of Python's values, None for NULL; for small results.

        Raises
        ------
        HopscopeError
            The recording is closed or damaged, or there is no memory for it.
        """
        with self._ready() as trace:
            return [dict(zip(self.columns, row, strict=True)) for row in trace.rows(self._query)]

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Return the columns as arrays.

        Returns
        -------
        dict of str to ndarray, each of shape (rows,)
            By name, in the order of :attr:`columns`. Integers and floats have the column's width, texts are of dtype
            object. A column with NULLs is a :class:`numpy.ma.MaskedArray`, masked where it has them.

        Raises
        ------
        HopscopeError
            As :meth:`rows`.
        """
        with self._ready() as trace:
            return trace.columns(self._query)

    def arrow(self) -> pa.Table:
        """Return the rows as a :class:`pyarrow.Table`.

        Raises
        ------
        UsageError
            pyarrow is not installed.
        HopscopeError
            As :meth:`rows`.
        """
        _require("pyarrow", "arrow")
        with self._ready() as trace:
            return trace.arrow(self._query)

    def pandas(self) -> pd.DataFrame:
        """Return the rows as a :class:`pandas.DataFrame`.

        Raises
        ------
        UsageError
            pandas is not installed.
        HopscopeError
            As :meth:`rows`.
        """
        _require("pandas", "pandas")
        with self._ready() as trace:
            return trace.pandas(self._query)

    @contextmanager
    def _ready(self) -> Iterator[Trace]:
        """Give the trace, with what the query names."""
        trace = self._opened()
        build_for(trace, self._query)
        with trace.by_user():
            yield trace


def _require(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed", f"pip install 'hopscope[{extra}]', or use .numpy() or .rows()")
