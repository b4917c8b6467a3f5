# SPDX-License-Identifier: Apache-2.0
"""What a recording's Parquet files must have, whoever wrote them: the columns that the schema declares.

Whatever reads a table can rely on it: each column is there, is of its kind, and has a value in each row unless it is
nullable; times and durations are such that sums and differences of them do not overflow, and what is counted is not
negative. What a recorder writes is mostly proved by the ends of the
files, which say that a column has a value in each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.store.engine import unbelieving
from hopscope.store.hosts import CHANGES, PROBES
from hopscope.store.schema import BY_NAME, HOST_UNITS, TEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from hopscope.store.engine import DuckDB
    from hopscope.store.schema import Column, Table

_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
_TEXTS: Final = frozenset({"VARCHAR"})
_SHOWN_CHARACTERS: Final = 40
_DECLARED: Final = {*BY_NAME, PROBES.name, CHANGES.name}
# No clock has run for longer, nor do two differ by more.
_LONGEST_NS: Final = 1 << 60
_TIME: Final = (1 - _LONGEST_NS, _LONGEST_NS - 1)
_COUNT: Final = (0, _LONGEST_NS - 1)
# Column → least and greatest value. The wall clock may have been set from 1970 on.
_RANGES: Final = {"bound_ns": _COUNT, "lost": _COUNT, "step_ns": (-1 << 62, 1 << 62)}


def check(engine: DuckDB, table: Table, files: Sequence[Path], with_statistics: Collection[str]) -> None:
    """Look at a table's files, which can be opened.

    Parameters
    ----------
    engine
        What reads them.
    table, files
        What they should have, and which they are.
    with_statistics
        Columns whose least and greatest values are written beside them, too. The engine believes that; we do not.

    Raises
    ------
    FormatError
        One of them cannot be what a recorder wrote; it and its column are named.
    """
    found = _problem(engine, table, files, with_statistics)
    if not found:
        return
    for file in files if len(files) > 1 else ():
        check(engine, table, [file], with_statistics)
    raise _damaged(files[0], found)


def check_hosts(engine: DuckDB, files: Mapping[Table, Sequence[Path]]) -> None:
    """Look at whether a joined trace has each host that its tables have numbers of; they have passed :func:`check`.

    Parameters
    ----------
    engine
        What reads them.
    files
        Of each table; there is at least one of `hosts` and one of `clocks`.

    Raises
    ------
    FormatError
        The hosts are not numbered from 0 on, a number is of none of them, or a host has no clock; the file is named.
    """
    by_name = {table.name: of for table, of in files.items()}
    value = unbelieving("host")
    rows, hosts, least, most = engine.values(
        by_name["hosts"],
        ["count(*)", f"count(DISTINCT {value})", f"coalesce(min({value}), 0)", f"coalesce(max({value}), -1)"],
    )
    if not rows or (least, most) != (0, hosts - 1):
        raise _damaged(by_name["hosts"][0], "its hosts are not numbered from 0 on")
    (clocks,) = engine.values(by_name["clocks"], [f"count(DISTINCT {value})"])
    if clocks < hosts:
        raise _damaged(by_name["clocks"][0], f"it has the clocks of {clocks} of {hosts} hosts")
    for table, of in files.items():
        names = [column.name for column in table.columns if column.name in HOST_UNITS] if of else []
        ends = [f"coalesce({end}({unbelieving(name)}), 0)" for name in names for end in ("min", "max")]
        found = iter(engine.values(of, ends) if ends else ())
        for name, least, most in zip(names, found, found, strict=True):
            if not 0 <= least <= most < hosts * HOST_UNITS[name]:
                wrong = least if least < 0 else most
                raise _damaged(of[0], f"its column {name} has {wrong}, which is of none of its {hosts} hosts")


def _damaged(file: Path, found: str) -> FormatError:
    return FormatError(f"{file} is damaged: {found}", "Restore it from a backup, or remove it")


def _problem(engine: DuckDB, table: Table, files: Sequence[Path], with_statistics: Collection[str]) -> str:
    """Return what is wrong with the files, as a part of a sentence; nothing if it is nothing."""
    kinds = engine.kinds(files)
    there = [column for column in table.columns if column.name in kinds]
    for column in table.columns:
        if column not in there and not column.nullable:
            return f"it has no column {column.name}"
    for column in there:
        if kinds[column.name] not in (_TEXTS if column.dtype == TEXT else _WHOLE):
            return f"its column {column.name} has values of the type {kinds[column.name][:_SHOWN_CHARACTERS]}"
    return _wrong_value(engine, table, there, files, with_statistics)


def _wrong_value(
    engine: DuckDB, table: Table, columns: Sequence[Column], files: Sequence[Path], with_statistics: Collection[str]
) -> str:
    # A table with texts has few rows, and the engine wrote it, to which each column may be NULL.
    numbers = all(column.dtype != TEXT for column in columns)
    required = engine.required(files) if numbers else set()
    filled = [column.name for column in columns if not column.nullable and column.name not in required]
    ranges = {column.name: _range_of(table, column) for column in columns if column.dtype != TEXT}
    limited = {name: both for name, both in ranges.items() if both}
    if not filled and not limited:
        return ""
    asked = [f"count(*) - count({unbelieving(name)})" for name in filled]
    for name in limited:
        values = f'"{name}"' if name in required and name not in with_statistics else unbelieving(name)
        asked += [f"coalesce(min({values}), 0)", f"coalesce(max({values}), 0)"]
    found = iter(engine.values(files, asked))
    for name, rows in zip(filled, found, strict=False):
        if rows:
            return f"its column {name} has no value in {rows:,} rows"
    for (name, (from_, to)), least, most in zip(limited.items(), found, found, strict=True):
        if least < from_ or most > to:
            return f"its column {name} has {least if least < from_ else most}, which it cannot be"
    return ""


def _range_of(table: Table, column: Column) -> tuple[int, int] | None:
    """Return the least and greatest value that a column can have; None: what its type can be."""
    if column.name == "time_ns":
        return _TIME
    if table.name not in _DECLARED:  # a tracepoint's own fields are called as the kernel likes
        return None
    return _RANGES.get(column.name, _TIME if column.name.endswith("_ns") else None)
