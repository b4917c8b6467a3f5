# SPDX-License-Identifier: Apache-2.0
"""The batches of a fleet: which of them count, and how they are written, packed and removed.

A pack is made of all batches of an hour, and says which. From the moment that it is there, they do not count any more,
whether they are still there or not; so no row counts twice, and none is missing, whenever a process is killed. They are
removed some time later, as somebody may be reading them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np

from hopscope import __version__
from hopscope.errors import FormatError, HopscopeError
from hopscope.store.document import CHECKSUM, packed, parsed
from hopscope.store.engine import NO_EXTENSIONS
from hopscope.store.fleet import schema
from hopscope.store.fleet.place import DOCUMENT, HIST, SUFFIX, Place, name_of
from hopscope.store.fleet.schema import TABLES, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.store.fleet.place import Name

FORMAT: Final = "hopscope fleet batch"
# How long batches stay that a pack has replaced, for those who are reading them.
GRACE_S: Final = 900.0
# Smaller than the recorder's: these files are kept for months.
_FORM: Final = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, PARQUET_VERSION v2"
_THREADS: Final = 2
# Batches that become a pack; of more, there are several, which the next run packs.
_MOST_AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class Batches:
    """What is in a fleet's directory.

    Attributes
    ----------
    counted
        The batches whose rows count, in order.
    replaced
        Those that are in one of these packs, too; to be removed.
    known
        Ids of all batches that were written, as far as something of them is still there.
    notes
        Sentences on what is there and cannot be read.
    """

    counted: list[Name]
    replaced: dict[Name, Name]
    known: set[str]
    notes: list[str] = field(default_factory=list)


def batches_of(place: Place, day: str | None = None) -> Batches:
    """Look at a fleet's directory, or at a day of it.

    Raises
    ------
    UsageError
        It cannot be read.
    FormatError
        A pack is damaged.
    """
    names, foreign = place.names(day)
    notes = [
        f"{'1 batch' if count == 1 else f'{count:,} batches'} of {place.shown} left out, of version {version}, while"
        f" this hopscope reads version {VERSION}: read them with a newer one"
        for version, count in sorted(Counter(name.version for name in names if name.version != VERSION).items())
    ]
    if foreign:
        notes.append(f"{len(foreign):,} entries of {place.shown} are no batches, such as {foreign[0]}: left out")
    ours = [name for name in names if name.version == VERSION and place.is_whole(name)]
    known = {name.id for name in ours}
    held = {name: _held(place, name) for name in ours if name.kind == "pack"}
    holder: dict[str, Name] = {}
    for name, ids in sorted(held.items(), key=lambda each: len(each[1])):  # the last pack has most
        known |= ids
        holder |= dict.fromkeys(ids, name)
    counted = [name for name in ours if name.id not in holder]
    return Batches(counted, {name: holder[name.id] for name in ours if name.id in holder}, known, notes)


def _held(place: Place, name: Name) -> set[str]:
    """Return the ids of the batches that a pack has the rows of."""
    path = f"{place.shown}/{HIST}/{name.path}/{DOCUMENT}"
    try:
        document = parsed(place.document(name))
        document.pop(CHECKSUM, None)
        if document["format"] != FORMAT:
            raise ValueError("it is of no batch")  # noqa: TRY301 # as what parsing raises
        return {str(each) for each in document["holds"]}
    except FileNotFoundError:  # removed meanwhile
        return set()
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise FormatError(f"{path} is damaged: {error}", "Remove the folder that it is in, or restore it") from error


def identity(*words: object) -> str:
    """Return the id of a batch from what tells its contents from any other's."""
    return hashlib.blake2b("\0".join(map(str, words)).encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class Rows:
    """Rows for an hour, as arrays; a host's of some minutes, or those of many hosts.

    Attributes
    ----------
    hops
        Columns of `hop_minutes` but its lists.
    slots
        ``row`` (of `hops`), ``slot`` and ``samples`` of each slot that has any.
    others
        Columns of the tables `minutes`, `drops` and `facts`.
    """

    hops: Mapping[str, NDArray[Any]]
    slots: Mapping[str, NDArray[Any]]
    others: Mapping[str, Mapping[str, NDArray[Any]]]


def add_rows(place: Place, hour: int, identity: str, rows: Rows) -> bool:
    """Add a batch.

    Parameters
    ----------
    hour
        Since 1970; all rows are of it.
    identity
        Of :func:`identity`.

    Returns
    -------
    bool
        False: it was there.

    Raises
    ------
    DiskFullError
        It cannot be written.
    """
    with writing_engine() as engine:
        made = _Relations(engine)
        made.take("hops", rows.hops)
        made.take("slot_rows", rows.slots)
        figures = ", ".join(name for name in schema.HOP_MINUTES.names if name not in {"slots", "counts"})
        engine.execute(
            f"CREATE TEMP TABLE hop_minutes AS SELECT {figures}, slots, counts FROM"
            " (SELECT *, row_number() OVER () - 1 AS row FROM hops) h JOIN"
            " (SELECT row, list(slot ORDER BY slot) AS slots, list(samples ORDER BY slot) AS counts FROM slot_rows"
            " GROUP BY row) s USING (row)"
        )
        for table, columns in rows.others.items():
            made.take(table, columns)
        return add_relations(place, hour, identity, engine, {"hop_minutes", *rows.others})


def add_relations(
    place: Place, hour: int, identity: str, engine: duckdb.DuckDBPyConnection, relations: Iterable[str]
) -> bool:
    """Add a batch of relations of an engine, which have the tables' names, as :func:`add_rows` does."""
    queries = {name: f"SELECT * FROM {name}" for name in relations}
    queries[schema.HOP_HOURS.name] = schema.hours_of_minutes(schema.HOP_MINUTES.name)
    name = name_of(hour, "part", identity)
    return identity not in batches_of(place, name.day).known and place.add(name, _Batch(engine, queries, []))


@dataclass(slots=True)
class _Relations:
    """Arrays as relations of an engine; texts are made its own type, of which it has one for all values."""

    engine: duckdb.DuckDBPyConnection

    def take(self, name: str, columns: Mapping[str, NDArray[Any]]) -> None:
        self.engine.register("taken", {key: np.asarray(values) for key, values in columns.items()})
        self.engine.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM taken")
        self.engine.unregister("taken")


@dataclass(slots=True)
class _Batch:
    """Writes the files of a batch: table → query for its rows."""

    engine: duckdb.DuckDBPyConnection
    queries: Mapping[str, str]
    holds: Sequence[str]

    def __call__(self, folder: Path) -> bytes:
        counts = {}
        for table in TABLES:
            if query := self.queries.get(table.name):
                counts[table.name] = self._write(table, query, folder / f"{table.name}{SUFFIX}")
        return packed(
            {
                "format": FORMAT,
                "version": VERSION,
                "hopscope": __version__,
                "rows": counts,
                "holds": sorted(self.holds),
            }
        )

    def _write(self, table: schema.Table, query: str, path: Path) -> int:
        columns = ", ".join(f"CAST({each.name} AS {each.sql}) AS {each.name}" for each in table.columns)
        try:
            with path.open("wb") as out:
                ((rows,),) = self.engine.execute(
                    f"COPY (SELECT {columns} FROM ({query}) ORDER BY {', '.join(table.order)})"
                    f" TO '/proc/self/fd/{out.fileno()}' ({_FORM}, USE_TMP_FILE false)"
                ).fetchall()
        except duckdb.IOException as error:
            raise OSError(f"{path}: {error}") from error
        if not rows:
            path.unlink()
        return int(rows)


def writing_engine() -> duckdb.DuckDBPyConnection:
    """Return an engine for relations that become batches (:func:`add_relations`)."""
    engine = duckdb.connect(config=dict(NO_EXTENSIONS, threads=_THREADS, preserve_insertion_order=True))
    engine.execute("SET enable_progress_bar = false")
    return engine


def compact(place: Place, *, before_hour: int, grace_s: float = GRACE_S) -> tuple[int, int]:
    """Make a pack of the batches of each hour that is over, and remove what packs have replaced.

    Parameters
    ----------
    before_hour
        Hours before this one, since 1970, are packed.
    grace_s
        How long replaced batches stay.

    Returns
    -------
    tuple of int
        How many packs were made, and of how many batches.

    Raises
    ------
    UsageError
        Another process does this, or the directory cannot be written.
    DiskFullError
        There is no room.
    FormatError
        A batch is damaged; it, and those of its hour, stay as they are.
    """
    with place.alone():
        place.sweep()
        found = batches_of(place)
        packs = of = 0
        for hour, group in itertools.groupby(found.counted, lambda name: name.number):
            names = list(group)
            for first in range(0, len(names), _MOST_AT_ONCE) if hour < before_hour else ():
                if len(part := names[first : first + _MOST_AT_ONCE]) > 1:
                    _pack(place, hour, part)
                    packs, of = packs + 1, of + len(part)
        for name, pack in batches_of(place).replaced.items():
            if place.age_s(pack) >= grace_s:
                place.remove(name)
    return packs, of


def _pack(place: Place, hour: int, names: Sequence[Name]) -> None:
    holds = {name.id for name in names}
    for name in names:
        if name.kind == "pack":
            holds |= _held(place, name)
    there = {name: place.tables(name) for name in names}
    queries = {}
    for table in TABLES:
        files = [place.file(name, table.name) for name in names if table.name in there[name]]
        if not files:
            continue
        source = f"(SELECT {', '.join(table.names)} FROM {_read(files)})"
        every = f"SELECT DISTINCT * FROM {source}" if table is schema.FACTS else f"SELECT * FROM {source}"
        queries[table.name] = schema.hours_of_hours(source) if table is schema.HOP_HOURS else every
    with writing_engine() as engine:
        try:
            place.add(name_of(hour, "pack", identity(*sorted(holds))), _Batch(engine, queries, sorted(holds)))
        except duckdb.Error as error:
            if found := damaged(place, names):
                raise found from error
            raise


def damaged(place: Place, names: Sequence[Name]) -> HopscopeError | None:
    """Return what to raise where a query fails because a file cannot be read; None: all of them can."""
    with duckdb.connect(config=dict(NO_EXTENSIONS, threads=1)) as engine:
        for name in names:
            for table in sorted(place.tables(name)):
                file = place.file(name, table)
                try:
                    engine.execute(f"SELECT count(hash(COLUMNS(*))) FROM {_read([file])}").fetchall()
                except (duckdb.Error, OSError) as found:
                    why = str(found).strip().splitlines()[0].rstrip(".")
                    return FormatError(
                        f"{file} is damaged: {why}",
                        f"Restore it, or remove {file.parent}, whose rows are missing then",
                    )
        missing = next((name for name in names if not place.tables(name)), None)
    return HopscopeError(f"{place.shown} was compacted while it was read", "Try again") if missing else None


def _read(files: Sequence[Path]) -> str:
    listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], hive_partitioning=false)"


def keep(
    place: Place, *, since_hour: int | None, raw_since_hour: int | None = None, most_bytes: int | None = None
) -> tuple[int, int]:
    """Remove what is too old, and then the oldest until the rest fits.

    Parameters
    ----------
    since_hour, raw_since_hour
        Batches, and recordings, of hours before this one are removed; None: none because of its age.
    most_bytes
        What may be left; None: any size. All recordings (``raw``) go before the first hour of histograms does.

    Returns
    -------
    tuple of int
        How many batches were removed, and how many recordings.

    Raises
    ------
    UsageError
        Another process changes the directory.
    HopscopeError
        Something cannot be removed.
    """
    with place.alone():
        batches, recordings = _hours(place), place.recordings()
        old = [hour for hour in batches if since_hour is not None and hour < since_hour]
        doomed = [folder for hour, folder in recordings if raw_since_hour is not None and hour < raw_since_hour]
        if most_bytes is not None:
            sizes = {folder: _size_bytes(folder) for _, folder in recordings if folder not in doomed}
            of_hours = {hour: sum(map(place.size_bytes, batches[hour])) for hour in batches if hour not in old}
            left = sum(sizes.values()) + sum(of_hours.values())
            for folder, size in sizes.items():
                if left > most_bytes:
                    doomed.append(folder)
                    left -= size
            for hour, size in of_hours.items():
                if left > most_bytes:
                    old.append(hour)
                    left -= size
        for folder in doomed:
            place.remove_folder(folder)
        removed = [name for hour in old for name in batches[hour]]
        for name in removed:
            place.remove(name)
    return len(removed), len(doomed)


def _hours(place: Place) -> dict[int, list[Name]]:
    """Return the batches of each hour, in order; a pack comes after what it has replaced, which counts without it."""
    found = batches_of(place)
    hours: dict[int, list[Name]] = {}
    for name in sorted([*found.replaced, *found.counted], key=lambda name: name.number):
        hours.setdefault(name.number, []).append(name)
    return hours


def _size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
