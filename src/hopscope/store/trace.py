# SPDX-License-Identifier: Apache-2.0
"""Open a trace: its tables as SQL views, whatever state its recorder left it in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from hopscope.errors import FormatError, HopscopeError, UsageError, limit_reached
from hopscope.store import checksums, contents
from hopscope.store.engine import DuckDB, typed
from hopscope.store.limits import limits
from hopscope.store.meta import Metadata
from hopscope.store.parts import tables_of
from hopscope.store.schema import TABLES
from hopscope.store.unrecorded import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from hopscope.store.engine import Cause
    from hopscope.store.schema import Table

# What is read at most to find the file that a query failed on.
_SEARCHED_BYTES: Final = 1 << 30
# A joined trace has rows of these in any case.
_OF_JOINED: Final = ("hosts", "clocks")


class Trace:
    """An open trace; a context manager.

    Each table of :mod:`hopscope.store.schema`, and each that the metadata describe, is a view of its name, with the
    columns as they are there. Besides them there are ``points`` (``point``, ``name``) and ``reasons`` (``reason``,
    ``name``).

    Parameters
    ----------
    folder
        That was recorded into.
    unrestricted
        Queries may read and write other files.

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

    def __init__(self, folder: Path, *, unrestricted: bool = False) -> None:
        self.folder = folder
        self.metadata = Metadata.read(folder)
        self.warnings: list[str] = []
        self.made: dict[str, Any] = {}
        if self.metadata.state == "recording":
            self.warnings.append("the recorder was killed or is still running: the trace ends with the last full file")
        elif self.metadata.state != "complete":
            self.warnings.append(f"recording {self.metadata.state}")
        self.warnings += self.metadata.joined.get("notes", [])
        self.warnings += self.metadata.notes
        if self.metadata.missed:
            self.warnings.append(f"missed events: {self.metadata.missed:,} (BPF runs suppressed by the kernel)")
        if rules := [f"--{name} '{self.metadata.options[name]}'" for name in RULES if name in self.metadata.options]:
            self.warnings.append(
                f"recorded with {' '.join(rules)}: results that need other events are missing or wrong"
            )
        tables = (*TABLES, *self.metadata.tables)
        self._parts = tables_of(folder, [table.name for table in tables])
        self._check_missing()
        self._by_user = False
        with contextlib.ExitStack() as stack:
            self._engine = stack.enter_context(contextlib.closing(DuckDB(folder, unrestricted=unrestricted)))
            self._make_views(tables)
            self._make_names("points", "point", self.metadata.points)
            self._make_names("reasons", "reason", self.metadata.reasons)
            stack.pop_all()

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
        yield from map(self.columns, self.file_queries(table))

    def file_queries(self, table: Table) -> list[str]:
        """Return the query for the rows of each of a table's files."""
        return [self._source(table, [file]) for file in self._parts[table.name].whole]

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
        """Return the names of the tables that a user's query reads, whether they are there or not.

        Of a query that cannot be parsed, they are its words.
        """
        with self.by_user(), self._errors():
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

    def copy_parquet(self, query: str, out: BinaryIO) -> None:
        """Write the rows of a query as a Parquet file, in its order, with the exceptions of :meth:`copy_lines`."""
        with self._errors():
            self._engine.copy_parquet(query, out)

    def interrupt(self) -> None:
        """Have a query that another thread runs end with a KeyboardInterrupt there, if the engine can."""
        self._engine.interrupt()

    def share_done(self) -> float | None:
        """Return which part of the query that another thread runs is done, 0 to 1, as the engine estimates it.

        None: there is none, or the engine does not know.
        """
        return self._engine.share_done()

    def sizes_bytes(self, table: Table) -> list[int]:
        """Return the size of each of a table's files, as :meth:`by_file` reads them."""
        return [file.stat().st_size for file in self._parts[table.name].whole]

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def by_user(self) -> Iterator[None]:
        """Take queries inside of the ``with`` for the user's own: what is wrong with them is wrong usage."""
        before, self._by_user = self._by_user, True
        try:
            yield
        finally:
            self._by_user = before

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if limit := limit_reached(error):
                raise limit from error
            cause = self._engine.cause(error)
            if cause is None:
                raise
            raise self._complaint(cause, error) from error

    def _complaint(self, cause: Cause, error: Exception) -> BaseException:
        """Return what to raise where the engine complains."""
        said = str(error).strip().splitlines()[0].rstrip(".")
        if cause == "interrupted":
            return KeyboardInterrupt()
        if cause == "memory":
            return HopscopeError(f"{self.folder}: there is not enough memory for this: {said}", "Select a part of it")
        if cause == "denied":
            return UsageError(said, "`hopscope sql --unrestricted` reads and writes other files, too")
        return self._wrong(cause, said)

    def _wrong(self, cause: Cause, said: str) -> HopscopeError:
        """Tell a wrong query from damaged data: the former only the user can be to blame for."""
        if not (self._by_user and cause == "query") and (file := self._damaged_file()):
            return FormatError(f"{file} is damaged: {said}", "Restore it from a backup")
        if self._by_user:
            return UsageError(said, "docs/trace.md describes the tables")
        return FormatError(
            f"{self.folder} cannot be read: {said}", f"`hopscope verify {self.folder}` looks for damaged files"
        )

    def _damaged_file(self) -> Path | None:
        """Return a file that differs from its checksum, or cannot be read."""
        known, left_bytes = checksums.read(self.folder), _SEARCHED_BYTES
        for table, file in self.files():
            digest = known.get(file.relative_to(self.folder).as_posix())
            try:
                left_bytes -= file.stat().st_size
                if left_bytes < 0:
                    break
                if not (checksums.digest_of(file) == digest if digest else self.can_decode(table, file)):
                    return file
            except OSError:
                return file
        return None

    def can_decode(self, table: Table, file: Path) -> bool:
        """Tell whether all values of a file can be read, whatever they are."""
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        try:
            self._engine.rows(f"SELECT count(*) FROM ({self._engine.source(table, [file])}) s WHERE hash({names}) = 0")
        except Exception as error:
            if self._engine.cause(error) in {"query", "data"}:
                return False
            raise
        return True

    def files(self) -> Iterator[tuple[Table, Path]]:
        """Yield the Parquet files that are whole, each with its table."""
        for table in (*TABLES, *self.metadata.tables):
            for file in self._parts[table.name].whole:
                yield table, file

    def _check_missing(self) -> None:
        """Say which files are gone that were recorded; refuse a joined trace, of which all files belong together."""
        there = {file.relative_to(self.folder).as_posix() for each in self._parts.values() for file in each.files}
        listed = (name for name in checksums.read(self.folder) if name.partition("/")[0] in self._parts)
        missing = [name for name in listed if name not in there]
        if self.metadata.joined:
            missing += [table for table in _OF_JOINED if not self._parts[table].files]
        if missing and self.metadata.joined:
            raise FormatError(
                f"{self.folder} has no {missing[0]}, which belongs to the joined trace",
                "Remove the folder, and join the hosts again with `hopscope join`",
            )
        if missing:
            self.warnings.append(f"recorded files that are missing: {len(missing):,}, such as {missing[0]}")

    def _make_views(self, tables: Sequence[Table]) -> None:
        """Make a view of each table whose files can be what was recorded; refuse the others before they are read."""
        with self._errors():
            rows, statistics = self._engine.described([file for each in self._parts.values() for file in each.whole])
        limits().rows(self.folder, rows, sum(each.size_bytes for each in self._parts.values()))
        for table in tables:
            if files := self._parts[table.name].whole:
                with self._errors():
                    contents.check(
                        self._engine, table, files, {name for folder, name in statistics if folder == table.name}
                    )
            self._make_view(table)
        if self.metadata.joined:
            with self._errors():
                contents.check_hosts(self._engine, {table: self._parts[table.name].whole for table in TABLES})

    def _make_view(self, table: Table) -> None:
        parts = self._parts[table.name]
        if parts.cut:
            self.warnings.append(
                f"{len(parts.cut)} of {len(parts.whole) + len(parts.cut)} files of {table.name} are cut off: left out"
            )
        source = self._source(table, parts.whole)
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

    def _make_names(self, view: str, number: str, names: dict[int, str]) -> None:
        listed = ", ".join(f"({each}, '{name.replace(chr(39), chr(39) * 2)}')" for each, name in names.items())
        values = f"(VALUES {listed})" if listed else "(SELECT 0, '' WHERE false)"
        with self._errors():
            self._engine.make_base(view, f"SELECT * FROM {values} AS names({number}, name)")
