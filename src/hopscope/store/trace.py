# SPDX-License-Identifier: Apache-2.0
"""Open a trace: its tables as SQL views, whatever state its recorder left it in."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from hopscope.store.engine import DuckDB, typed
from hopscope.store.meta import Metadata
from hopscope.store.schema import TABLES

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from hopscope.store.engine import Engine
    from hopscope.store.schema import Table

_MAGIC: Final = b"PAR1"
_FOOTER: Final = struct.Struct("<I4s")


class Trace:
    """An open trace; a context manager.

    Each table of :mod:`hopscope.store.schema`, and each that the metadata describe, is a view of its name, with the
    columns as they are there. Besides them there are ``points`` (``point``, ``name``) and ``reasons`` (``reason``,
    ``name``).

    Parameters
    ----------
    folder
        That was recorded into.
    engine
        What runs the queries; without it DuckDB, here. It is closed with the trace.

    Attributes
    ----------
    metadata : Metadata
        What the trace says of itself.
    warnings : list of str
        Sentences on what is missing: files that are cut off, a recorder that was killed.
    made : dict
        Relations that are there besides the trace's own tables → what they were made for
        (:mod:`hopscope.trace.relation`). Who replaces one of those tables clears it.

    Raises
    ------
    FormatError
        It is no trace, or not of a version that can be read.
    """

    def __init__(self, folder: Path, engine: Engine | None = None) -> None:
        self.folder = folder
        self.metadata = Metadata.read(folder)
        self.warnings: list[str] = []
        self.made: dict[str, Any] = {}
        if self.metadata.state == "recording":
            self.warnings.append("the recorder was killed or is still running: the trace ends with the last full file")
        elif self.metadata.state != "complete":
            self.warnings.append(f"recording {self.metadata.state}")
        self.warnings += self.metadata.joined.get("notes", [])
        if self.metadata.missed:
            self.warnings.append(f"missed events: {self.metadata.missed:,} (BPF runs suppressed by the kernel)")
        self._engine = engine or DuckDB()
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
            return self._engine.columns(query)

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
            return self._engine.rows(query)

    def arrow(self, query: str) -> pa.Table:
        """Run a query and return its rows as Arrow's table, with the exceptions of :meth:`rows`; needs pyarrow."""
        with self._errors():
            return self._engine.arrow(query)

    def pandas(self, query: str) -> pd.DataFrame:
        """Run a query and return its rows as a data frame, with the exceptions of :meth:`rows`; needs pandas."""
        with self._errors():
            return self._engine.pandas(query)

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
            return self._engine.names(query)

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table of a query's rows; one of that name is replaced.

        Raises
        ------
        UsageError
            The query is wrong.
        """
        with self._errors():
            self._engine.make_table(name, query)

    def make_view(self, name: str, query: str) -> None:
        """Make a temporary view of a query, as :meth:`make_table` makes a table."""
        with self._errors():
            self._engine.make_view(name, query)

    def drop(self, *names: str) -> None:
        """Drop temporary tables, as far as they are there."""
        for name in names:
            with self._errors():
                self._engine.drop(name)

    def drop_view(self, name: str) -> None:
        """Drop a temporary view, if it is there."""
        with self._errors():
            self._engine.drop_view(name)

    def tables_of(self, query: str) -> set[str]:
        """Return the names of the tables that a query reads, whether they are there or not.

        Of a query that cannot be parsed, they are its words.
        """
        with self._errors():
            return self._engine.tables_of(query)

    def whole(self, table: str) -> str:
        """Return what a table is called for a query while a temporary view of its name hides it."""
        return self._engine.whole(table)

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        """Write the rows of a query that gives one column of text, a line each, in the query's order.

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
        with self._errors():
            return self._engine.copy_lines(query, out)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return self._engine.errors(self.folder)

    def _make_view(self, table: Table) -> None:
        source = self._source(table, self._complete(table))
        if table.once:
            source = f"SELECT DISTINCT * FROM ({source})"
        with self._errors():
            self._engine.make_base(table.name, source)

    def _source(self, table: Table, files: list[Path]) -> str:
        """Return the query for the rows of some of a table's files."""
        if not files:
            return f"SELECT {typed(table, ['NULL'] * len(table.columns))} WHERE FALSE"
        with self._errors():
            return self._engine.source(table, files)

    def _complete(self, table: Table) -> list[Path]:
        """Return the table's files that are whole."""
        whole, cut = whole_files(self.folder / table.name)
        if cut:
            self.warnings.append(f"{cut} of {len(whole) + cut} files of {table.name} are cut off: left out")
        return whole

    def _make_names(self, view: str, number: str, names: dict[int, str]) -> None:
        listed = ", ".join(f"({each}, '{name.replace(chr(39), chr(39) * 2)}')" for each, name in names.items())
        values = f"(VALUES {listed})" if listed else "(SELECT 0, '' WHERE false)"
        with self._errors():
            self._engine.make_base(view, f"SELECT * FROM {values} AS names({number}, name)")


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
