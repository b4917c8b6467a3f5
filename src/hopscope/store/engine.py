# SPDX-License-Identifier: Apache-2.0
"""The seam to what runs SQL over a trace's files: DuckDB."""

from __future__ import annotations

import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias

import duckdb
import numpy as np

from hopscope.errors import HopscopeError, UsageError
from hopscope.store.budget import memory_bytes, threads
from hopscope.store.schema import SQL_TYPES
from hopscope.store.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from hopscope.store.schema import Table

# What an exception of an engine is about: a query that cannot be planned, or, as it ran, values or files; it is
# what a query must not do; there is not enough memory; somebody interrupted it.
Cause: TypeAlias = Literal["query", "data", "denied", "memory", "interrupted"]

# Read from the engine at a time.
_CHUNK: Final = 1 << 20
# The named pipe in which files come.
_LINES: Final = "lines"
# Of extensions, none is loaded, installed or looked for.
NO_EXTENSIONS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "extension_directory": "/dev/null/none",
}
# Statements that read what the connection has; of them, one.
_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI)
_OF_QUERIES: Final = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.NotImplementedException,
)


class DuckDB:
    """Runs SQL in this process; one for each open trace.

    It reads and writes nothing but the files of one folder, and its own temporary ones, and cannot be told otherwise.

    Parameters
    ----------
    folder
        Of a recording, which is there.
    unrestricted
        Queries may read and write whatever the user may, and change settings; extensions are never loaded.
    """

    def __init__(self, folder: Path, *, unrestricted: bool = False) -> None:
        self._folder = folder
        self._unrestricted = unrestricted
        self._spill = Spill()
        self._closing = threading.Lock()
        # The last ones asked for.
        self._kinds_of: Sequence[Path] = ()
        self._kinds: dict[str, str] = {}
        # Paths are given below this descriptor: no character of the folder's own path has a meaning in them.
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._connection = duckdb.connect(config=self._settings())
        except (duckdb.Error, RuntimeError, MemoryError) as error:
            raise HopscopeError(f"The engine for queries cannot start: {error}", "Give it more memory") from error
        self._restrict()

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Return a query's columns; where there are NULLs, a masked array."""
        return self._run(query).fetchnumpy()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows."""
        return self._run(query).fetchall()

    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows as Arrow's table; needs pyarrow."""
        self._check(query)
        return self._connection.sql(query).to_arrow_table()

    def pandas(self, query: str) -> pd.DataFrame:
        """Return a query's rows as a data frame; needs pandas."""
        return self._run(query).df()

    def names(self, query: str) -> list[str]:
        """Return the names of the columns that a query gives, and do not run it."""
        return [each[0] for each in self._run(f"SELECT * FROM ({query}) LIMIT 0").description or []]

    def source(self, table: Table, files: Sequence[Path]) -> str:
        """Return the query for the rows of some of a table's files; a column that a file lacks is NULL in them."""
        found = self.kinds(files)
        # In quotation marks: the kernel calls fields as it likes, `order` for one.
        known = (f'"{column.name}"' if column.name in found else "NULL" for column in table.columns)
        return f"SELECT {typed(table, known)} FROM {self.read(files)}"

    def kinds(self, files: Sequence[Path]) -> dict[str, str]:
        """Return the columns that Parquet files have: name → SQL type, the widest where they differ."""
        if self._kinds_of != files:
            found = self._connection.execute(f"DESCRIBE SELECT * FROM {self.read(files)}").fetchall()
            self._kinds_of, self._kinds = files, {name: kind for name, kind, *_ in found}
        return self._kinds

    def required(self, files: Sequence[Path]) -> set[str]:
        """Return the columns that cannot be NULL in any of these Parquet files, by how their values are stored."""
        found = self._connection.execute(
            f"SELECT name FROM parquet_schema([{self._listed(files)}]) GROUP BY name"
            f" HAVING count(*) = {len(files)} AND bool_and(repetition_type = 'REQUIRED')"
        ).fetchall()
        return {name for (name,) in found}

    def values(self, files: Sequence[Path], expressions: Iterable[str]) -> tuple[Any, ...]:
        """Return aggregates over all rows of Parquet files."""
        ((*found,),) = self._connection.execute(f"SELECT {', '.join(expressions)} FROM {self.read(files)}").fetchall()
        return tuple(found)

    def described(self, files: Sequence[Path]) -> tuple[int, set[tuple[str, str]]]:
        """Return what Parquet files say of themselves.

        Returns
        -------
        tuple
            How many rows they have, in the parts that they have them in; and which columns have statistics: folder and
            name of each.
        """
        if not files:
            return 0, set()
        ((rows, columns),) = self._connection.execute(
            "SELECT coalesce(sum(row_group_num_rows) FILTER (column_id = 0), 0), list(DISTINCT"
            " [string_split(file_name, '/')[-2], path_in_schema])"
            " FILTER (coalesce(stats_min, stats_max, stats_min_value, stats_max_value) IS NOT NULL)"
            f" FROM parquet_metadata([{self._listed(files)}])"
        ).fetchall()
        return int(rows), {(folder, name) for folder, name in columns or ()}

    def make_base(self, name: str, query: str) -> None:
        """Make a view that is not temporary, so that one of its name that is hides it."""
        self._connection.execute(f'CREATE VIEW "{name}" AS {query}')

    def whole(self, name: str) -> str:
        """Return what a view that can be hidden is called whether it is or not."""
        return f"memory.main.{name}"

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table of a query's rows; one of that name is replaced, which the query may be of."""
        self._connection.execute(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {query}")

    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view; one of that name is replaced."""
        self._connection.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")

    def drop(self, name: str) -> None:
        """Drop a temporary table, if it is there."""
        self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def drop_view(self, name: str) -> None:
        """Drop a temporary view, if it is there."""
        self._connection.execute(f"DROP VIEW IF EXISTS {name}")

    def tables_of(self, query: str) -> set[str]:
        """Return the names of the tables that a query reads, there or not; if it cannot be parsed, its words.

        They are those of the parsed query: `get_table_names` binds it, which fails where a table is not there.
        """
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
        """Write a query's rows of one text each as lines, in its order; return how many.

        They are bytes that never become Python's strings, which is three times as fast.
        """
        lines = 0
        for chunk in self._copied(query, "FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE ''"):
            out.write(chunk)
            lines += chunk.count(b"\n")
        return lines

    def copy_parquet(self, query: str, out: BinaryIO) -> None:
        """Write a query's rows as a Parquet file, in its order."""
        out.writelines(self._copied(query, "FORMAT parquet, COMPRESSION zstd"))

    def _copied(self, query: str, options: str) -> Iterator[bytes]:
        """Iterate over what the engine writes of a query, in parts."""
        if self._spill.folder is None:
            raise UsageError("There is no directory for temporary files", "Set TMPDIR to one")
        # A named pipe in the engine's own folder: a descriptor of a pipe is a path that it may not open.
        path = self._spill.folder / _LINES
        if not path.exists():
            os.mkfifo(path, 0o600)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        writing = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # so that it has not ended before the engine opens it
        os.set_blocking(reading, True)
        statement = f"COPY ({query}) TO {_text(str(path))} ({options}, USE_TMP_FILE false)"
        with ThreadPoolExecutor(1) as worker, open(reading, "rb", buffering=0) as pipe:  # noqa: PTH123 # a descriptor
            done = worker.submit(self._copy, statement, writing)
            while chunk := pipe.read(_CHUNK):
                yield chunk
            done.result()

    def _copy(self, statement: str, writing: int) -> None:
        try:
            self._connection.execute(statement)
        finally:
            os.close(writing)

    def interrupt(self) -> None:
        """Have a query that another thread runs end with what :meth:`cause` calls interrupted."""
        self._connection.interrupt()

    def share_done(self) -> float | None:
        """Return which part of the query that another thread runs is done, 0 to 1; None: that is not known.

        It is the engine's own estimate, by what it has read, and need not grow evenly.
        """
        with self._closing:
            if self._folder_fd < 0:
                return None
            percent = self._connection.query_progress()
        return percent / 100 if percent > 0 else None

    def close(self) -> None:
        """Close the connection; again is allowed."""
        with self._closing:
            self._connection.close()
            self._spill.close()
            if self._folder_fd >= 0:
                os.close(self._folder_fd)
                self._folder_fd = -1

    def cause(self, error: Exception) -> Cause | None:
        """Tell by its kind what an exception is about; None: it is none of the engine's."""
        if isinstance(error, duckdb.InterruptException):
            return "interrupted"
        if isinstance(error, duckdb.OutOfMemoryException):
            return "memory"
        if isinstance(error, duckdb.PermissionException):
            return "denied"
        if isinstance(error, (*_OF_QUERIES, UnicodeEncodeError)):  # the latter of words that were no text
            return "query"
        # The latter two where bytes are not even text to complain with.
        return "data" if isinstance(error, duckdb.Error | RuntimeError | UnicodeDecodeError) else None

    def _settings(self) -> dict[str, Any]:
        memory = memory_bytes()
        return {
            **NO_EXTENSIONS,
            "memory_limit": f"{memory >> 20}MiB",
            "threads": threads(memory),
            "preserve_insertion_order": False,
            "python_enable_replacements": False,
            "temp_directory": str(self._spill.folder or ""),
            "max_temp_directory_size": f"{self._spill.most_bytes >> 20}MiB",
        }

    def _restrict(self) -> None:
        # For `share_done`; none is drawn.
        self._connection.execute("SET enable_progress_bar_print = false; SET enable_progress_bar = true")
        if not self._unrestricted:
            lines = _text(str(self._spill.folder / _LINES)) if self._spill.folder else ""
            self._connection.execute(
                f"SET allowed_directories = [{_text(self._below())}]; SET allowed_paths = [{lines}]; "
                "SET enable_external_access = false; SET lock_configuration = true"
            )

    def _run(self, query: str) -> duckdb.DuckDBPyConnection:
        self._check(query)
        return self._connection.execute(query)

    def _check(self, query: str) -> None:
        """Refuse what the user may have written to other ends than reading."""
        statements = self._connection.extract_statements(query)
        if not statements:
            raise duckdb.ParserException("There is no statement")
        if not self._unrestricted and (len(statements) > 1 or statements[0].type not in _READING):
            raise duckdb.PermissionException(
                "Only one statement, and one that reads, is possible without --unrestricted"
            )
        if any(each.type == duckdb.StatementType.LOAD for each in statements):
            raise duckdb.NotImplementedException("Extensions are never loaded")

    def read(self, files: Sequence[Path]) -> str:
        """Return the expression for all rows of Parquet files below its folder, to select from."""
        return f"read_parquet([{self._listed(files)}], union_by_name=true, hive_partitioning=false)"

    def _below(self) -> str:
        return f"/proc/self/fd/{self._folder_fd}/"

    def _listed(self, files: Sequence[Path]) -> str:
        return ", ".join(_text(f"{self._below()}{file.relative_to(self._folder)}") for file in files)


def _text(value: str) -> str:
    """Return a text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def words(query: str) -> set[str]:
    """Return all words of a query."""
    return set(re.findall(r"\w+", query))


def typed(table: Table, values: Iterable[str]) -> str:
    """Return these expressions as the columns of a table."""
    return ", ".join(
        f'CAST({value} AS {SQL_TYPES[np.dtype(column.dtype).name]}) AS "{column.name}"'
        for column, value in zip(table.columns, values, strict=True)
    )


def unbelieving(column: str) -> str:
    """Return the expression for a column's values that the engine cannot take from statistics instead.

    Whoever wrote a file may have written other statistics than it has.
    """
    return f'(["{column}"])[1]'


def last_known(expression: str) -> str:
    """Return the window function for an expression's last value that is not NULL."""
    return f"last_value({expression} IGNORE NULLS)"
