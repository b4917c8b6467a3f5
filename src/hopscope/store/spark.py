# SPDX-License-Identifier: Apache-2.0
"""Spark as the engine of a trace: for a trace too large for one host, on the Spark that is there already.

pyspark is not among what hopscope installs: who has a Spark has the pyspark that fits it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from hopscope.store.engine import Engine, words
from hopscope.store.schema import SQL_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from hopscope.store.engine import Cause
    from hopscope.store.schema import Table

# As DuckDB has it: "x" is a column and not a text, and what overflows is an error.
_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}
_DTYPES: Final = {
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
    "double": np.float64,
    "boolean": np.bool_,
}
_GLOB: Final = re.compile(r"[\\*?\[\]{}]")


class Spark(Engine):
    """Spark, 4 or later.

    Parameters
    ----------
    session
        Its executors must find the trace's files under the same path. Its settings and its views stay as they are.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        self._sources = 0

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Return a query's columns."""
        frame = self._frame(query)
        rows = frame.collect()
        values = list(zip(*rows, strict=True)) or [()] * len(frame.columns)
        return {
            name: _column(column, _DTYPES.get(kind, np.object_))
            for (name, kind), column in zip(frame.dtypes, values, strict=True)
        }

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows."""
        return [tuple(row) for row in self._frame(query).collect()]

    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows."""
        return self._frame(query).toArrow()

    def pandas(self, query: str) -> pd.DataFrame:
        """Return a query's rows."""
        return self._frame(query).toPandas()

    def names(self, query: str) -> list[str]:
        """Return the names of its columns."""
        return list(self._frame(query).columns)

    def source(self, table: Table, files: Sequence[Path]) -> str:
        """Make a view of them."""
        self._sources += 1
        name = f"files_{self._sources}"
        paths = ["file://" + _GLOB.sub(r"\\\g<0>", str(file.absolute())) for file in files]
        types = ", ".join(f"`{column.name}` {SQL_TYPES[np.dtype(column.dtype).name]}" for column in table.columns)
        self._session.read.schema(types).parquet(*paths).createOrReplaceTempView(name)
        return f"SELECT * FROM {name}"

    def make_base(self, name: str, query: str) -> None:
        """Make it under two names, as there are temporary views alone."""
        self.make_view(self.whole(name), query)
        self.make_view(name, f"SELECT * FROM {self.whole(name)}")

    def whole(self, name: str) -> str:
        """Return the other name."""
        return f"whole_{name}"

    def make_table(self, name: str, query: str) -> None:
        """Compute the rows now and let the executors keep them: there are no temporary tables."""
        self._frame(query).localCheckpoint().createOrReplaceTempView(name)

    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view."""
        self._session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {_translated(query)}")

    def drop(self, name: str) -> None:
        """Forget what stands for a table; the executors do when nobody refers to it."""
        self._session.catalog.dropTempView(name)

    def drop_view(self, name: str) -> None:
        """Drop a temporary view."""
        self._session.catalog.dropTempView(name)

    def tables_of(self, query: str) -> set[str]:
        """Return every word of the query: its parser cannot be asked from Python."""
        return words(query)

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        """Write them partition by partition."""
        lines = 0
        for (line,) in self._frame(query).toLocalIterator():
            out.write(f"{line}\n".encode())
            lines += 1
        return lines

    def copy_parquet(self, query: str, out: BinaryIO) -> None:
        """Write what fits into the driver's memory: executors write files of their own, and not here."""
        pq.write_table(self.arrow(query), out, compression="zstd")

    def close(self) -> None:
        """Forget nothing: the session with its views goes with this object, and the one given belongs to others."""

    def cause(self, error: Exception) -> Cause | None:
        """Tell by the kind of the exception."""
        if isinstance(error, AnalysisException):
            return "query"
        # The latter is a task's, which pyspark does not translate.
        return "data" if isinstance(error, PySparkException | Py4JJavaError) else None

    def _frame(self, query: str) -> DataFrame:
        return self._session.sql(_translated(query))


def _translated(query: str) -> str:
    """Write as Spark does what :func:`hopscope.store.engine.last_known` says, and a backslash, which escapes there."""
    return query.replace(" IGNORE NULLS)", ") IGNORE NULLS").replace("\\", "\\\\")


def _column(values: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
    missing = np.array([value is None for value in values], np.bool_)
    if not missing.any():
        return np.array(values, dtype)
    return np.ma.MaskedArray(np.array([dtype() if value is None else value for value in values], dtype), missing)
