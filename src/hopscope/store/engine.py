# SPDX-License-Identifier: Apache-2.0
"""The seam to what runs SQL over a trace's files. Queries keep to what the engines share; what differs is here.

They share less than it seems. A query says ``NULLS LAST`` where it orders by what may be NULL, gives ``concat`` no
NULL, calls text STRING and takes ``a / b`` for no integer. tests/store/test_engine.py has the words that it may use.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import duckdb
import numpy as np

from hopscope.errors import FormatError, UsageError
from hopscope.store.schema import SQL_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from hopscope.store.schema import Table

# What queries may need of memory before they go to the disk.
MEMORY: Final = "3GB"
# Read from the engine at a time.
_CHUNK: Final = 1 << 20


class Engine(ABC):
    """Runs SQL; one for each open trace."""

    @abstractmethod
    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Return a query's columns; where there are NULLs, a masked array."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows."""

    @abstractmethod
    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows as Arrow's table; needs pyarrow."""

    @abstractmethod
    def pandas(self, query: str) -> pd.DataFrame:
        """Return a query's rows as a data frame; needs pandas."""

    @abstractmethod
    def names(self, query: str) -> list[str]:
        """Return the names of the columns that a query gives, and do not run it."""

    @abstractmethod
    def source(self, table: Table, files: Sequence[Path]) -> str:
        """Return the query for the rows of some of a table's files; a column that a file lacks is NULL in them."""

    @abstractmethod
    def make_base(self, name: str, query: str) -> None:
        """Make a view that can be hidden by a temporary one of its name."""

    @abstractmethod
    def whole(self, name: str) -> str:
        """Return what a view that can be hidden is called whether it is or not."""

    @abstractmethod
    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table of a query's rows; one of that name is replaced, which the query may be of."""

    @abstractmethod
    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view; one of that name is replaced."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forget a temporary table, if it is there."""

    @abstractmethod
    def drop_view(self, name: str) -> None:
        """Forget a temporary view, if it is there."""

    @abstractmethod
    def tables_of(self, query: str) -> set[str]:
        """Return the names of the tables that a query reads, there or not; if it cannot be parsed, its words."""

    @abstractmethod
    def copy_lines(self, query: str, out: BinaryIO) -> int:
        """Write a query's rows of one text each as lines, in its order; return how many."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it has."""

    @abstractmethod
    def errors(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        """Tell a wrong query (UsageError) from a damaged trace (FormatError) in what the engine complains of."""


class DuckDB(Engine):
    """The engine that comes with hopscope: in this process, on this host."""

    def __init__(self) -> None:
        spill = (
            Path(tempfile.gettempdir()) / f"hopscope-{os.getpid()}-{id(self):x}"
        )  # made when it is needed, and removed
        self._connection = duckdb.connect(
            config={"memory_limit": MEMORY, "preserve_insertion_order": False, "temp_directory": str(spill)}
        )

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Return a query's columns."""
        return self._connection.execute(query).fetchnumpy()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows."""
        return self._connection.execute(query).fetchall()

    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows."""
        return self._connection.sql(query).to_arrow_table()

    def pandas(self, query: str) -> pd.DataFrame:
        """Return a query's rows."""
        return self._connection.execute(query).df()

    def names(self, query: str) -> list[str]:
        """Return the names of its columns."""
        return [each[0] for each in self._connection.execute(f"SELECT * FROM ({query}) LIMIT 0").description or []]

    def source(self, table: Table, files: Sequence[Path]) -> str:
        """Return the query for their rows."""
        listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
        read = f"read_parquet([{listed}], union_by_name=true)"
        found = set(self.names(f"SELECT * FROM {read}"))
        # In quotation marks: the kernel calls fields as it likes, `order` for one.
        known = (f'"{column.name}"' if column.name in found else "NULL" for column in table.columns)
        return f"SELECT {typed(table, known)} FROM {read}"

    def make_base(self, name: str, query: str) -> None:
        """Make a view that is not temporary."""
        self._connection.execute(f'CREATE VIEW "{name}" AS {query}')

    def whole(self, name: str) -> str:
        """Return its name with the schema's."""
        return f"memory.main.{name}"

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table."""
        self._connection.execute(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {query}")

    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view."""
        self._connection.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")

    def drop(self, name: str) -> None:
        """Drop a temporary table."""
        self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def drop_view(self, name: str) -> None:
        """Drop a temporary view."""
        self._connection.execute(f"DROP VIEW IF EXISTS {name}")

    def tables_of(self, query: str) -> set[str]:
        """Return those of the parsed query. `get_table_names` binds it, which fails where a table is not there."""
        ((text,),) = self._connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [query]).fetchall()
        found: set[str] = set()
        of_query: set[str] = set()

        def look(node: dict[str, Any]) -> dict[str, Any]:
            if node.get("type") == "BASE_TABLE":
                found.add(node["table_name"])
            of_query.update(each["key"] for each in node.get("cte_map", {}).get("map", ()))
            return node

        return words(query) if json.loads(text, object_hook=look)["error"] else found - of_query

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        """Write them as bytes that never become Python's strings, which is three times as fast."""
        reading, writing = os.pipe()
        options = "FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE ''"
        statement = f"COPY ({query}) TO '/dev/fd/{writing}' ({options})"
        lines = 0
        with ThreadPoolExecutor(1) as worker, open(reading, "rb", buffering=0) as pipe:  # noqa: PTH123 # a descriptor
            done = worker.submit(self._copy, statement, writing)
            while chunk := pipe.read(_CHUNK):
                out.write(chunk)
                lines += chunk.count(b"\n")
            done.result()
        return lines

    def _copy(self, statement: str, writing: int) -> None:
        try:
            self._connection.execute(statement)
        finally:
            os.close(writing)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextlib.contextmanager
    def errors(self, folder: Path) -> Iterator[None]:
        """Tell by the kind of the exception."""
        try:
            yield
        except (
            duckdb.ProgrammingError,
            duckdb.DataError,
            duckdb.NotSupportedError,
            duckdb.OutOfMemoryException,
        ) as error:
            if isinstance(error, duckdb.InvalidInputException):  # as a rule that of a file, rather than the query
                raise damaged(folder, error) from error
            raise wrong(error) from error
        except (duckdb.Error, RuntimeError) as error:  # the latter where bytes are not even text to complain with
            raise damaged(folder, error) from error


def words(query: str) -> set[str]:
    """Return all words of a query."""
    return set(re.findall(r"\w+", query))


def typed(table: Table, values: Iterable[str]) -> str:
    """Return these expressions as the columns of a table."""
    return ", ".join(
        f'CAST({value} AS {SQL_TYPES[np.dtype(column.dtype).name]}) AS "{column.name}"'
        for column, value in zip(table.columns, values, strict=True)
    )


def wrong(error: object) -> UsageError:
    """Return what to raise where a query is wrong."""
    return UsageError(_first_line(error), "docs/trace.md describes the tables")


def damaged(folder: Path, error: object) -> FormatError:
    """Return what to raise where a trace is damaged."""
    return FormatError(f"{folder} cannot be read: {_first_line(error)}", "Restore it from a backup")


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")


def last_known(expression: str) -> str:
    """Return the window function for an expression's last value that is not NULL; Spark has another form."""
    return f"last_value({expression} IGNORE NULLS)"
