# SPDX-License-Identifier: Apache-2.0
"""Spark as the engine of a fleet: its executors run DuckDB, each on traces of its own.

What is distributed is traces, not events: an executor computes the parts of some traces and adds them up, and gives
each share of the rows to the one that makes lines of it (:mod:`hopscope.verbs.fleet.raw.question`). Spark moves bytes
and knows nothing of what is in them. The driver gets the lines that are shown and the sentences on what is missing.

Executors need hopscope and pyarrow, and the fleet's directory under the same path; no rights, and no BPF.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hopscope import __version__
from hopscope.errors import HopscopeError, VersionError
from hopscope.verbs.fleet.raw.answer import Found
from hopscope.verbs.fleet.raw.parts import parts_of
from hopscope.verbs.fleet.raw.question import (
    NOTES_SHARE,
    SHARES,
    Merged,
    lines_of,
    merged,
    none,
    note_lines,
    packed,
    shares,
    sorted_lines,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from hopscope.store.fleet.raw import Leaf
    from hopscope.verbs.fleet.raw.asked import Asked

_LEAVES: Final = "host string, name string, folder string"
_SHARES: Final = "share int, data binary"
_LINES: Final = "share int, count bigint, data binary"
# Of a core: so that those that have read small traces take more of them.
_TASKS: Final = 4
_AT_ONCE: Final = 32
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.app.name": "hopscope fleet report",
}


def found_on_spark(session: SparkSession, asked: Asked, leaves: Sequence[Leaf]) -> Found:
    """Answer a question with a Spark session.

    Raises
    ------
    HopscopeError
        An executor failed.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 # who has no Spark has not this module either

    cores = max(session.sparkContext.defaultParallelism, 1)
    listed = [(leaf.host, leaf.name, str(leaf.folder.absolute())) for leaf in leaves]
    tasks = max(1, min(len(listed), cores * _TASKS))
    frame = session.createDataFrame(listed, _LEAVES).repartition(tasks)
    parts = frame.mapInArrow(partial(_parts, asked=asked, version=__version__), _SHARES)
    divided = parts.repartition(min(SHARES + 1, max(cores, 2)), "share")
    try:
        rows = divided.mapInArrow(partial(_lines, asked=asked), _LINES).collect()
    except PySparkException as error:
        raise _failed(str(error)) from error
    lines = [unpacked(bytes(row.data)) for row in rows if row.share != NOTES_SHARE]
    notes = [unpacked(bytes(row.data)).to_pylist() for row in rows if row.share == NOTES_SHARE]
    count = sum(row["count"] for row in rows if row.share != NOTES_SHARE)
    return Found(sorted_lines(asked.asked, lines, asked.limit), count, notes[0] if notes else [])


def session_at(master: str) -> SparkSession:
    """Return a session of a master of Spark, such as ``spark://host:7077`` or ``local-cluster[2,1,1024]``.

    Raises
    ------
    HopscopeError
        It cannot be had.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 # half a gigabyte that hopscope does not install
    except ImportError as error:
        raise HopscopeError("There is no pyspark", "Install it: pip install 'hopscope[spark]'") from error
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # whatever of Java, of Py4J or of Spark is not there
        said = str(error).strip().splitlines()
        raise HopscopeError(
            f"Spark cannot be used: {said[0] if said else type(error).__name__}",
            "Java 17 or 21 must be there, and the master be reached",
        ) from error


def _parts(batches: Iterator[pa.RecordBatch], asked: Asked, version: str) -> Iterator[pa.RecordBatch]:
    """Give the shares of what some traces say. Runs in an executor."""
    if version != __version__:
        raise VersionError(f"an executor has hopscope {__version__}, the driver {version}")
    leaves = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    found = shares(asked.asked, parts_of(asked, leaves))
    yield _batch(_SHARES, [(share, packed(table)) for share, table in found.items()])


def _lines(batches: Iterator[pa.RecordBatch], asked: Asked) -> Iterator[pa.RecordBatch]:
    """Give the lines of some shares. Runs in an executor."""
    question = asked.asked
    whole, waiting, has_rows = none(question), [], False
    for batch in batches:
        for share, data in zip(batch["share"].to_pylist(), batch["data"].to_pylist(), strict=True):
            table = unpacked(data)
            empty = none(question)
            has_rows = has_rows or share != NOTES_SHARE
            waiting.append(Merged(empty.rows, table) if share == NOTES_SHARE else Merged(table, empty.notes))
            if len(waiting) >= _AT_ONCE:
                whole, waiting = merged(question, [whole, *waiting]), []
    whole = merged(question, [whole, *waiting])
    found: list[tuple[Any, ...]] = []
    if has_rows:
        lines, count = lines_of(question, whole.rows, asked.limit)
        found.append((0, count, packed(lines)))
    if whole.notes.num_rows:
        found.append((NOTES_SHARE, 0, packed(note_lines(whole.notes))))
    yield _batch(_LINES, found)


def _batch(schema: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    types = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    fields = [each.split() for each in schema.split(", ")]
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(column, types[kind]) for column, (_, kind) in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])


def _failed(said: str) -> HopscopeError:
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    raised = next(
        (line for line in reversed(lines) if "Error: " in line or "Exception: " in line), lines[0] if lines else ""
    )
    if "No module named 'hopscope" in said:
        return HopscopeError("An executor of Spark has no hopscope", "Install hopscope[arrow] for the Python of each")
    return HopscopeError(f"An executor of Spark failed: {raised}", "See its log")
