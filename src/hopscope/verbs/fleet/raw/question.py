# SPDX-License-Identifier: Apache-2.0
"""What a question on recordings of a fleet is, whichever engine answers it.

Each trace gives a *part*: rows that the report's own code computes of it. Parts *merge* in any order and grouping to
the same rows, by one statement of SQL over them. Rows that a line of the answer is made of have the same values in the
columns by which they are *spread*, so that several processes can make lines of their own share of the rows, and give
the first ones alone to whoever prints them. All three are DuckDB's SQL over Arrow's tables, wherever they run.

What is missing travels in the same way, as rows of :data:`NOTES`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from hopscope.store.engine import NO_EXTENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hopscope.model.report import Column, Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

# Shares into which rows are divided, at most one process each.
SHARES: Final = 64
# A share by itself: all that is missing is in it.
NOTES_SHARE: Final = SHARES

# Kinds of notes: what cannot be read, or has no end, by which the answer is not complete; what all recordings say of
# themselves; what a question says: hops that it left out, sentences, and that a recording has nothing of the kind.
UNREAD: Final = "unread"
UNFINISHED: Final = "unfinished"
RECORDED: Final = "recorded"
LOST: Final = "lost"
MISSED: Final = "missed"
ABSENT: Final = "absent"
WARNING: Final = "warning"
BROKEN: Final = "broken"
SAID: Final = "said"
WITHOUT: Final = "without"

_TYPES: Final = {"text": pa.string(), "int": pa.int64(), "float": pa.float64()}


@dataclass(frozen=True, slots=True)
class Part:
    """What a trace says to a question.

    Attributes
    ----------
    rows
        Values in the order of the question's columns, but the host, which comes first there.
    notes
        What is missing: kind, text, and how much of it.
    """

    rows: Iterable[Sequence[Any]]
    notes: Iterable[tuple[str, str, int]] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes
    ----------
    name
        Of it.
    meaning
        What a line of the answer is.
    part
        Computes a trace's part, of a selection of it; the number is how many rows are wanted at most, of those
        questions that have the slowest of something.
    rows
        Name → kind (text, int, float) of each column of a part; ``host`` comes first.
    merge
        Query over ``rows`` that adds rows up to fewer, of the same columns.
    spread
        Columns whose values are the same for all rows of a line.
    lines
        Query over merged ``rows`` for the lines of the answer.
    order
        By which they are sorted: no two are equal in all of it.
    columns
        Of the answer.
    values
        Makes the values of a line, from its columns by name.
    by_host
        The same for lines of each host, if it has these.
    """

    name: str
    meaning: str
    part: Callable[[Trace, Selection, int], Part]
    rows: Mapping[str, str]
    merge: str
    spread: tuple[str, ...]
    lines: str
    order: str
    columns: Sequence[Column]
    values: Callable[[Mapping[str, Any]], Sequence[Value]]
    by_host: Question | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return pa.schema([(name, _TYPES[kind]) for name, kind in self.rows.items()])


# What is missing of which host. `folder`: of what is of one trace alone. `amount`: how much, in whatever the kind is
# counted in; `traces`: of how many.
NOTES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "text", "folder", "host")),
        *((name, pa.int64()) for name in ("amount", "traces")),
    ]
)
_MERGED_NOTES: Final = """
    SELECT kind, text, folder, host, CAST(sum(amount) AS BIGINT) AS amount, CAST(sum(traces) AS BIGINT) AS traces
    FROM rows GROUP BY kind, text, folder, host"""
NOTE_LINES: Final = """
    SELECT kind, text, folder, CAST(sum(amount) AS BIGINT) AS amount, count(DISTINCT host) AS hosts,
           CAST(sum(traces) AS BIGINT) AS traces, list(host ORDER BY amount DESC, host)[1] AS host
    FROM rows GROUP BY kind, text, folder ORDER BY kind, amount DESC, text, folder"""


@dataclass(frozen=True, slots=True)
class Merged:
    """Parts that are added up.

    Attributes
    ----------
    rows
        Of the question's schema.
    notes
        Of :data:`NOTES`.
    """

    rows: pa.Table
    notes: pa.Table


def merged(question: Question, parts: Sequence[Merged]) -> Merged:
    """Add parts up."""
    return Merged(
        _query(question.merge, [part.rows for part in parts], question.schema),
        _query(_MERGED_NOTES, [part.notes for part in parts], NOTES),
    )


def none(question: Question) -> Merged:
    """Return what no trace says."""
    return Merged(question.schema.empty_table(), NOTES.empty_table())


def shares(question: Question, whole: Merged) -> dict[int, pa.Table]:
    """Divide what is merged: share → its rows; those that no line needs at once may be in different ones.

    The last share has the notes.
    """
    found = {NOTES_SHARE: whole.notes} if whole.notes.num_rows else {}
    if not whole.rows.num_rows:
        return found
    of_row = f"CAST(hash({', '.join(question.spread)}) % {SHARES} AS INTEGER)" if question.spread else "0"
    with _engine(rows=whole.rows) as engine:
        divided = engine.sql(f"SELECT *, {of_row} AS share FROM rows ORDER BY share").to_arrow_table()
    share = divided["share"].to_pylist()
    rows = divided.drop_columns(["share"]).cast(question.schema)
    begins = [place for place, each in enumerate(share) if place == 0 or share[place - 1] != each]
    for begin, end in zip(begins, [*begins[1:], len(share)], strict=True):
        found[share[begin]] = rows.slice(begin, end - begin)
    return found


def lines_of(question: Question, rows: pa.Table, limit: int | None) -> tuple[pa.Table, int]:
    """Return the lines that merged rows make, sorted, the first ones of a limit; and how many there are of them."""
    with _engine(rows=rows) as engine:
        ((count,),) = engine.sql(f"SELECT count(*) FROM ({question.lines}) l").fetchall()
        return engine.sql(_first(f"({question.lines})", question, limit)).to_arrow_table(), count


def note_lines(notes: pa.Table) -> pa.Table:
    """Return what merged notes come to, over all hosts."""
    with _engine(rows=notes) as engine:
        return engine.sql(NOTE_LINES).to_arrow_table()


def sorted_lines(question: Question, parts: Sequence[pa.Table], limit: int | None) -> list[dict[str, Any]]:
    """Return the first ones of lines, as they are sorted, from the first ones of each share."""
    if not parts:
        return []
    with _engine(lines=pa.concat_tables(parts)) as engine:
        found: list[dict[str, Any]] = engine.sql(_first("lines", question, limit)).to_arrow_table().to_pylist()
        return found


def _first(source: str, question: Question, limit: int | None) -> str:
    return f"SELECT * FROM {source} l ORDER BY {question.order}{'' if limit is None else f' LIMIT {limit}'}"


def packed(table: pa.Table) -> bytes:
    """Return a table's bytes, for another process."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return] # pyarrow has no types


def unpacked(raw: bytes) -> pa.Table:
    """Return the table."""
    with pa.ipc.open_stream(raw) as reader:
        return reader.read_all()


def _query(query: str, tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    with _engine(rows=pa.concat_tables(tables) if tables else schema.empty_table()) as engine:
        return engine.sql(query).to_arrow_table().cast(schema)


# Of each thread that adds up: it takes longer to make one than to ask most questions.
_OWN: Final = threading.local()


@contextmanager
def _engine(**tables: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give an engine that has these tables, and reads nothing else."""
    if not hasattr(_OWN, "engine"):
        settings = {**NO_EXTENSIONS, "enable_external_access": False, "python_enable_replacements": False}
        _OWN.engine = duckdb.connect(config=settings)
    engine: duckdb.DuckDBPyConnection = _OWN.engine
    for name, table in tables.items():
        engine.register(name, table)
    try:
        yield engine
    finally:
        for name in tables:
            engine.unregister(name)
