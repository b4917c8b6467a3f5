# SPDX-License-Identifier: Apache-2.0
"""Open a fleet's directory: its tables as SQL views, of the hours that are asked for."""

from __future__ import annotations

import contextlib
import csv
import time
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.errors import FormatError, HopscopeError, UsageError, limit_reached
from hopscope.store.engine import DuckDB
from hopscope.store.fleet.batches import batches_of, damaged
from hopscope.store.fleet.place import HIST, Place
from hopscope.store.fleet.schema import HOURS_OF_DAY, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.store.fleet.place import Name

LABELS: Final = "hosts.csv"
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
    folder
        Of the fleet.
    from_hour, until_hour
        Since 1970; the latter is not read. Without the latter, all that comes after the former is read; without the
        former, a day is; without both, the last day.

    Attributes
    ----------
    hours : range
        That are read.
    notes : list of str
        Sentences on what is there and was not read.

    Raises
    ------
    UsageError
        There is no such directory, it has nothing, or nothing of these hours.
    FormatError
        It is damaged, or of another version.
    """

    def __init__(self, folder: Path, *, from_hour: int | None = None, until_hour: int | None = None) -> None:
        self.folder = folder
        self._place = Place(folder)
        if not (folder / HIST).is_dir():
            what = "has no histograms of a fleet" if folder.is_dir() else "is no directory"
            raise UsageError(f"{folder} {what}", _NONE_YET)
        found = batches_of(self._place)
        self.notes = list(found.notes)
        if not found.counted:
            if found.notes:
                raise FormatError(*found.notes[0].rsplit(": ", 1))
            raise UsageError(f"{folder} is empty", _NONE_YET)
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
                f"{folder} has nothing of that time: it has {text_of_hour(min(there))} to"
                f" {text_of_hour(max(there) + 1)} UTC",
                "Give other times with --from and --until",
            )
        with contextlib.ExitStack() as stack:
            self._engine = stack.enter_context(contextlib.closing(DuckDB(folder)))
            self._make_views(self._batches)
            self._make_labels()
            stack.pop_all()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows.

        Raises
        ------
        FormatError
            A file is damaged.
        """
        with self._errors():
            return self._engine.rows(query)

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Run a query and return its columns, masked where there are NULLs, with the exception of :meth:`rows`."""
        with self._errors():
            return self._engine.columns(query)

    def make_table(self, name: str, query: str) -> None:
        """Make a temporary table, with the exception of :meth:`rows`."""
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
                    f"{self.folder}: there is not enough memory for this", "Give less time with --from and --until"
                ) from error
            if found := damaged(self._place, self._batches):
                raise found from error
            raise

    def _make_views(self, batches: Sequence[Name]) -> None:
        there = {name: self._place.tables(name) for name in batches}
        for table in TABLES:
            files = [self._place.file(name, table.name) for name in batches if table.name in there[name]]
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
        path = self.folder / LABELS
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                if HOST not in (reader.fieldnames or ()):
                    raise FormatError(
                        f"{path} has no column {HOST}", "Its first line names the columns: host,rack,role"
                    )
                return {
                    row[HOST]: {name: value for name, value in row.items() if name and name != HOST and value}
                    for row in reader
                }
        except FileNotFoundError:
            return {}
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
