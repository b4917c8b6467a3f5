# SPDX-License-Identifier: Apache-2.0
"""Open a trace: its tables as SQL views, whatever state its recorder left it in.

This module is the seam to the engine: what it offers (a query in, columns out) another engine offers over the same
files, and the queries keep to SQL that engines share.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import duckdb
import numpy as np

from hopscope.errors import FormatError, UsageError
from hopscope.store.meta import Metadata
from hopscope.store.schema import SQL_TYPES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.store.schema import Column, Table

_MAGIC: Final = b"PAR1"
_FOOTER: Final = struct.Struct("<I4s")
# Read from the engine at a time.
_CHUNK: Final = 1 << 20
# What queries may need of memory before they go to the disk.
MEMORY: Final = "3GB"


class Trace:
    """An open trace; a context manager.

    Each table of :mod:`hopscope.store.schema`, and each that the metadata describe, is a view of its name, with the
    columns as they are there. Besides them there are ``points`` (``point``, ``name``) and ``reasons`` (``reason``,
    ``name``).

    Parameters
    ----------
    folder
        That was recorded into.

    Attributes
    ----------
    metadata : Metadata
        What the trace says of itself.
    warnings : list of str
        Sentences on what is missing: files that are cut off, a recorder that was killed.

    Raises
    ------
    FormatError
        It is no trace, or not of a version that can be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata = Metadata.read(folder)
        self.warnings: list[str] = []
        if self.metadata.state == "recording":
            self.warnings.append("the recorder was killed, or is still at work: the trace ends with its last full file")
        elif self.metadata.state != "complete":
            self.warnings.append(f"recording {self.metadata.state}")
        self.warnings += self.metadata.joined.get("notes", [])
        if self.metadata.missed:
            self.warnings.append(f"{self.metadata.missed:,} events are missing: the kernel suppressed BPF runs")
        spill = (
            Path(tempfile.gettempdir()) / f"hopscope-{os.getpid()}-{id(self):x}"
        )  # made when it is needed, and removed
        self._engine = duckdb.connect(
            config={"memory_limit": MEMORY, "preserve_insertion_order": False, "temp_directory": str(spill)}
        )
        for table in (*TABLES, *self.metadata.tables):
            self._make_view(table)
        self._make_names("points", "point", self.metadata.points)
        self._make_names("reasons", "reason", self.metadata.reasons)

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Run a query.

        Returns
        -------
        dict of str to ndarray, each of shape (rows,)
            Column by column; where there are NULLs, a masked array.

        Raises
        ------
        UsageError
            The query is wrong.
        FormatError
            The trace is damaged.
        """
        with self._errors():
            return self._run(query).fetchnumpy()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; for small results.

        Raises
        ------
        UsageError
            The query is wrong.
        FormatError
            The trace is damaged.
        """
        with self._errors():
            return self._run(query).fetchall()

    def by_file(self, table: Table) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the columns of a table file by file, which bounds what they need; masked where they are not known.

        Rows that say the same as others are not left out, as they are from the table's view.

        Raises
        ------
        FormatError
            The trace is damaged.
        """
        for file in whole_files(self.folder / table.name)[0]:
            yield self.columns(self._source(table, [file]))

    def names(self, query: str) -> list[str]:
        """Return the names of the columns that a query gives."""
        with self._errors():
            return [each[0] for each in self._run(f"SELECT * FROM ({query}) LIMIT 0").description or []]

    def execute(self, statement: str) -> None:
        """Run a statement that gives nothing, such as the making of a temporary view or table.

        Raises
        ------
        UsageError
            It is wrong.
        """
        self._run(statement)

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table of a query's rows; one of that name is replaced.

        Raises
        ------
        UsageError
            The query is wrong.
        """
        self.execute(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {query}")

    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view of a query, as :meth:`make_table` makes a table."""
        self.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")

    @staticmethod
    def whole(table: str) -> str:
        """Return what a table is called for a query while a temporary view of its name hides it."""
        return f"memory.main.{table}"

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        """Write the rows of a query that gives one column of text, a line each, in the query's order.

        They go from the engine to the output as bytes, three times as fast as by way of Python's strings.

        Returns
        -------
        int
            How many lines.

        Raises
        ------
        UsageError
            The query is wrong.
        OSError
            The output cannot be written.
        """
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
            self._run(statement)
        finally:
            os.close(writing)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, statement: str) -> duckdb.DuckDBPyConnection:
        with self._errors():
            return self._engine.execute(statement)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Tell a wrong query from a damaged trace in what the engine complains of."""
        try:
            yield
        except (
            duckdb.ProgrammingError,
            duckdb.DataError,
            duckdb.NotSupportedError,
            duckdb.OutOfMemoryException,
        ) as error:
            if isinstance(error, duckdb.InvalidInputException):  # as a rule that of a file, rather than the query
                raise self._damaged(error) from error
            raise UsageError(_first_line(error), "docs/trace.md has the tables") from error
        except (duckdb.Error, RuntimeError) as error:  # the latter where bytes are not even text to complain with
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> FormatError:
        return FormatError(f"{self.folder} cannot be read: {_first_line(error)}", "Restore it from a copy")

    def _make_view(self, table: Table) -> None:
        source = self._source(table, self._complete(table))
        if table.once:
            source = f"SELECT DISTINCT * FROM ({source})"
        self.execute(f'CREATE VIEW "{table.name}" AS {source}')

    def _source(self, table: Table, files: list[Path]) -> str:
        """Return the query for the rows of some of a table's files."""
        listed = ", ".join(f"'{_quoted(file)}'" for file in files)
        source = f"read_parquet([{listed}], union_by_name=true)" if files else "(SELECT 0 AS nothing WHERE false)"
        # A column that came after the trace was recorded is not known in it.
        found = set(self.names(f"SELECT * FROM {source}"))
        columns = ", ".join(_column(each, known=each.name in found) for each in table.columns)
        return f"SELECT {columns} FROM {source}"

    def _complete(self, table: Table) -> list[Path]:
        """Return the table's files that are whole."""
        whole, cut = whole_files(self.folder / table.name)
        if cut:
            self.warnings.append(f"{cut} of {len(whole) + cut} files of {table.name} are cut off: left out")
        return whole

    def _make_names(self, view: str, number: str, names: dict[int, str]) -> None:
        listed = ", ".join(f"({each}, '{name.replace(chr(39), chr(39) * 2)}')" for each, name in names.items())
        values = f"(VALUES {listed})" if listed else "(SELECT 0, '' WHERE false)"
        self.execute(f"CREATE VIEW {view} AS SELECT * FROM {values} AS names({number}, name)")


def last_known(expression: str) -> str:
    """Return the window function for an expression's last value that is not NULL, which engines write differently."""
    return f"last_value({expression} IGNORE NULLS)"


def whole_files(folder: Path) -> tuple[list[Path], int]:
    """Return a table's files that are whole, in order, and how many others there are."""
    files = sorted(folder.glob("*.parquet"))
    whole = [file for file in files if _is_whole(file)]
    return whole, len(files) - len(whole)


def _is_whole(file: Path) -> bool:
    """Whether a Parquet file has its footer, without which nothing of it can be read."""
    size = file.stat().st_size
    if size < 2 * len(_MAGIC) + _FOOTER.size:
        return False
    with file.open("rb") as opened:
        starts = opened.read(len(_MAGIC))
        opened.seek(-_FOOTER.size, 2)
        length, ends = _FOOTER.unpack(opened.read(_FOOTER.size))
    return bool(starts == ends == _MAGIC and length <= size)


def _sql_type(column: Column) -> str:
    return SQL_TYPES[np.dtype(column.dtype).name]


def _column(column: Column, *, known: bool) -> str:
    # In quotation marks: the kernel calls fields as it likes, `order` for one.
    value = f'"{column.name}"' if known else "NULL"
    return f'CAST({value} AS {_sql_type(column)}) AS "{column.name}"'


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
