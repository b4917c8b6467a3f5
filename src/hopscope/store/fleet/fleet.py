# SPDX-License-Identifier: Apache-2.0
"""Open a fleet's directory: its tables as SQL views, of the hours that are asked for."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import time
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.errors import FormatError, HopscopeError, UsageError, limit_reached
from hopscope.store.engine import DuckDB
from hopscope.store.fleet.batches import batches_of, damaged
from hopscope.store.fleet.objects import place_of
from hopscope.store.fleet.schema import HOURS_OF_DAY, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray


HOST: Final = "host"
_HOUR_S: Final = 3600
_AHEAD_HOURS: Final = 1
_NONE_YET: Final = "`hopscope fleet add TRACE --to DIR` and `hopscope serve --fleet DIR` fill one"


class Fleet:
    """A fleet's directory that is open; a context manager.

    Each table of :mod:`hopscope.store.fleet.schema` is a view of its name. Besides them there is ``labels`` (``host``,
    ``name``, ``value``): of ``hosts.csv``, if there is one.

    Parameters
    ----------
    where
        The directory, or ``s3://BUCKET/PREFIX``.
    from_hour, until_hour
        Since 1970; the latter is not read. Without the latter, all that comes after the former is read; without the
        former, a day is; without both, the last day.

    Attributes
    ----------
    hours : range
        That are read.
    notes : list of str
        Sentences on what is there and was not read.
    shown : str
        What people call it.

    Raises
    ------
    UsageError
        There is no such directory, it has nothing, or nothing of these hours.
    FormatError
        It is damaged, or of another version.
    """

    def __init__(self, where: Path | str, *, from_hour: int | None = None, until_hour: int | None = None) -> None:
        self._place = place_of(where)
        self.shown = shown = self._place.shown
        if not self._place.exists():
            what = "has no histograms of a fleet" if self._place.folder.is_dir() else "is no directory"
            raise UsageError(f"{shown} {what}", _NONE_YET)
        found = batches_of(self._place)
        self.notes = list(found.notes)
        if not found.counted:
            if found.notes:
                raise FormatError(*found.notes[0].rsplit(": ", 1))
            raise UsageError(f"{shown} is empty", _NONE_YET)
        there = [name.number for name in found.counted]
        # A clock that is far ahead does not say which day was the last.
        come = [hour for hour in there if hour <= time.time() // _HOUR_S + _AHEAD_HOURS] or there
        if from_hour is None and until_hour is None and len(come) < len(there):
            self.notes.append(
                f"left out: {len(there) - len(come):,} of {len(there):,} batches are of hours that have not come yet,"
                f" from {text_of_hour(min(set(there) - set(come)))} on: their hosts' clocks are ahead (--from, --until)"
            )
        self.hours = _hours(from_hour, until_hour, range(min(there), max(come) + 1))
        self._batches = [name for name in found.counted if name.number in self.hours]
        if not self._batches:
            raise UsageError(
                f"{shown} has nothing of that time: it has {text_of_hour(min(there))} to"
                f" {text_of_hour(max(there) + 1)} UTC",
                "Give other times with --from and --until",
            )
        with contextlib.ExitStack() as stack:
            self._engine = stack.enter_context(contextlib.closing(DuckDB(self._place.folder)))
            self._made: set[str] = set()
            self._make_labels()
            stack.pop_all()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows.

        Raises
        ------
        FormatError
            A file is damaged.
        """
        self._make_views(query)
        with self._errors():
            return self._engine.rows(query)

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Run a query and return its columns, masked where there are NULLs, with the exception of :meth:`rows`."""
        self._make_views(query)
        with self._errors():
            return self._engine.columns(query)

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table, with the exception of :meth:`rows`."""
        self._make_views(query)
        with self._errors():
            self._engine.make_table(name, query)

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
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if limit := limit_reached(error):
                raise limit from error
            cause = self._engine.cause(error)
            if cause is None:
                raise
            if cause == "memory":
                raise HopscopeError(
                    f"{self.shown}: there is not enough memory for this", "Give less time with --from and --until"
                ) from error
            if found := damaged(self._place, self._batches):
                raise found from error
            raise

    def _make_views(self, query: str) -> None:
        """Make the views of the tables that a query names, whose files may have to be fetched."""
        for table in TABLES:
            if table.name in self._made or not re.search(rf"\b{table.name}\b", query):
                continue
            self._made.add(table.name)
            names = [name for name in self._batches if table.name in self._place.tables(name)]
            files = [self._place.file(name, table.name) for name in names]
            nothing = ", ".join(f"CAST(NULL AS {each.sql}) AS {each.name}" for each in table.columns)
            columns = ", ".join(table.names)
            source = f"SELECT {columns} FROM {self._engine.read(files)}" if files else f"SELECT {nothing} WHERE FALSE"
            with self._errors():
                self._engine.make_base(table.name, source)

    def _make_labels(self) -> None:
        rows = [(host, name, value) for host, labels in self.labels().items() for name, value in labels.items()]
        values = ", ".join(f"({', '.join(map(text, row))})" for row in rows) or "('', '', '')"
        self._engine.make_table(
            "labels", f"SELECT * FROM (VALUES {values}) AS labels(host, name, value){'' if rows else ' WHERE FALSE'}"
        )

    def labels(self) -> dict[str, dict[str, str]]:
        """Return host → name → value of ``hosts.csv``.

        Raises
        ------
        FormatError
            It is no table with a column ``host``.
        """
        path = f"{self.shown}/{self._place.LABELS}"
        try:
            found = self._place.labels()
            reader = csv.DictReader(io.StringIO(found or HOST, newline=""), strict=True)
            if HOST not in (reader.fieldnames or ()):
                raise FormatError(f"{path} has no column {HOST}", "Its first line names the columns: host,rack,role")
            return {
                row[HOST]: {name: value for name, value in row.items() if name and name != HOST and value}
                for row in reader
            }
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise FormatError(f"{path} cannot be read: {error}", "It is CSV in UTF-8, and may be removed") from error


def _hours(from_hour: int | None, until_hour: int | None, there: range) -> range:
    if from_hour is None:
        until = there.stop if until_hour is None else until_hour
        return range(until - HOURS_OF_DAY, until)
    return range(from_hour, max(there.stop, from_hour + 1) if until_hour is None else until_hour)


def text_of_hour(hour: int) -> str:
    """Return an hour since 1970 as text, UTC."""
    return text_of_minute(hour * 60)


def text_of_minute(minute: int) -> str:
    """Return a minute since 1970 as text, UTC."""
    import numpy as np  # noqa: PLC0415 # of this one function

    return str(np.datetime64(minute, "m")).replace("T", " ")


def text(value: str) -> str:
    """Return a text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"
