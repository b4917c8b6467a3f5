# SPDX-License-Identifier: Apache-2.0
"""Every statement of every report is run by DuckDB and by a real Spark, and their rows are compared, one by one.

pyspark and Java are half a gigabyte, and not installed for tests: `.venv/bin/pip install pyspark`, and Java 17 or 21,
make this run. Without them, tests/store/test_engine.py sees to it that statements have no other words than now.
"""

from __future__ import annotations

import re
import shutil
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.model.histogram import thresholds_ns
from hopscope.store.engine import DuckDB, Engine
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from hopscope.trace.histogram_sql import slot
from tests.store.columns import metadata, rows
from tests.verbs.report.every_report import TRACES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.store.engine import Cause
    from hopscope.store.schema import Table

pyspark_sql = pytest.importorskip("pyspark.sql", reason="no Spark here: pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java here, which Spark needs: 17 or 21"),
    pytest.mark.timeout(3600),
    pytest.mark.spark,
]

# Small data: what takes the time is to plan, to compile and to schedule.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
SENTENCE = re.compile(r"ORDER BY (?:[^()]|\((?:[^()]|\([^()]*\))*\))*\Z")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    builder = pyspark_sql.SparkSession.builder.master("local[1]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    yield made
    gateway = made.sparkContext._gateway
    made.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def spark(session: Any) -> Engine:  # noqa: ANN401 # pyspark's
    from hopscope.store.spark import Spark  # noqa: PLC0415 # it needs pyspark

    return Spark(session)


class Compared(Engine):
    """Gives DuckDB's answers, and fails where Spark's are others.

    Reports make the same tables again and again. What Spark has made or answered once, it is asked again only if
    DuckDB's rows are others than they were then.
    """

    def __init__(self, folder: Path, other: Engine) -> None:
        self._one, self._other = DuckDB(folder), other
        self._sources: dict[str, str] = {}
        self._made: dict[str, tuple[str, list[Any]]] = {}
        self._answers: dict[str, list[Any]] = {}
        self.asked = 0

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        found = self._one.columns(query)
        if self._is_new(query, _tuples(found)):
            other = self._other.columns(self._translated(query))
            assert list(other) == list(found), query
            _compare(query, _tuples(found), _tuples(other))
            # Spark's numbers of rows have 32 bits.
            assert [each.dtype.kind for each in other.values()] == [each.dtype.kind for each in found.values()], query
        return found

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        found = self._one.rows(query)
        if self._is_new(query, found):
            _compare(query, found, self._other.rows(self._translated(query)))
        return found

    def names(self, query: str) -> list[str]:
        found = self._one.names(query)
        assert self._other.names(query) == found, query
        return found

    def source(self, table: Table, files: Sequence[Path]) -> str:
        found = self._one.source(table, files)
        self._sources[found] = self._other.source(table, files)
        return found

    def make_base(self, name: str, query: str) -> None:
        self._one.make_base(name, query)
        self._other.make_base(name, self._translated(query))

    def whole(self, name: str) -> str:
        found = self._one.whole(name)
        self._sources[found] = self._other.whole(name)
        return found

    def make_table(self, name: str, query: str) -> None:
        self._one.make_table(name, query)
        found = sorted(self._one.rows(f"SELECT * FROM {name}"), key=_order)
        if self._made.get(name) != (query, found):
            self._other.make_table(name, query)
            self.asked += 1
            _compare(query, found, self._other.rows(f"SELECT * FROM {name}"))
            self._made[name] = query, found

    def make_view(self, name: str, query: str) -> None:
        self._one.make_view(name, query)
        self._other.make_view(name, self._translated(query))

    def drop(self, name: str) -> None:
        self._one.drop(name)

    def drop_view(self, name: str) -> None:
        self._one.drop_view(name)

    def tables_of(self, query: str) -> set[str]:
        return self._one.tables_of(query)

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        ours, theirs = BytesIO(), BytesIO()
        count = self._one.copy_lines(query, ours)
        assert self._other.copy_lines(query, theirs) == count
        assert theirs.getvalue().splitlines() == ours.getvalue().splitlines(), query
        out.write(ours.getvalue())
        return count

    def copy_parquet(self, query: str, out: BinaryIO) -> None:
        self._one.copy_parquet(query, out)

    def close(self) -> None:
        self._one.close()

    def cause(self, error: Exception) -> Cause | None:
        return self._one.cause(error)

    def _translated(self, query: str) -> str:
        for ours, theirs in self._sources.items():
            query = query.replace(ours, theirs)
        return query

    def _is_new(self, query: str, found: list[Any]) -> bool:
        if self._answers.get(query) == found:
            return False
        self._answers[query] = found
        self.asked += 1
        return True


def _tuples(found: dict[str, NDArray[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*(values.tolist() for values in found.values()), strict=True))


def _order(row: tuple[Any, ...]) -> list[Any]:
    return [(value is None, 0 if value is None else value) for value in row]


def _compare(query: str, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    if not SENTENCE.search(query):
        ours, theirs = sorted(ours, key=_order), sorted(theirs, key=_order)
    assert theirs == ours, query


@pytest.mark.parametrize("name", TRACES)
def test_spark_answers_what_duckdb_answers(name: str, session: Any, tmp_path: Path) -> None:  # noqa: ANN401 # pyspark's
    make, reports = TRACES[name]
    folder = make(tmp_path / "trace")
    engine = Compared(folder, spark(session))
    with Trace(folder, engine) as trace:
        for report in reports.values():
            report(trace)
    assert engine.asked > 100


def test_durations_have_the_same_slots(session: Any, tmp_path: Path) -> None:  # noqa: ANN401 # pyspark's
    near = {max(int(bound) + step, 0) for bound in thresholds_ns() for step in (-1, 0, 1)}
    durations = sorted(near | {10**9 << power for power in range(8)} | {10**9 >> power for power in range(10)})
    values = f"(VALUES {', '.join(f'({each})' for each in durations)}) AS d(took)"
    query = f"SELECT took, {slot('took')} AS slot FROM {values}"
    with TraceWriter(tmp_path / "t", metadata()):
        pass
    found = []
    for engine in (None, spark(session)):
        with Trace(tmp_path / "t", engine) as trace:
            found.append(sorted(trace.rows(query)))
    assert found[0] == found[1]
    assert len({number for _, number in found[0]}) > 200


@pytest.mark.parametrize("name", ["it's", "tr[a-c]ce", "*", "{a,b}", "a b", "ä", "x=1"])
def test_folders_of_any_name(name: str, session: Any, tmp_path: Path) -> None:  # noqa: ANN401 # pyspark's
    with TraceWriter(tmp_path / name, metadata(), file_rows=7) as written:
        for number in range(3):
            written.append("packets", rows("packets", 7, number * 7))
    with Trace(tmp_path / name, spark(session)) as trace:
        assert len(list((tmp_path / name / "packets").iterdir())) == 3
        assert trace.rows("SELECT count(*), count(DISTINCT time_ns) FROM packets") == [(21, 21)]


def test_what_is_wrong_is_said_in_one_sentence(session: Any, tmp_path: Path) -> None:  # noqa: ANN401 # pyspark's
    with TraceWriter(tmp_path / "t", metadata(), file_rows=7) as written:
        written.append("packets", rows("packets", 7))
    file = tmp_path / "t" / "packets" / "000001.parquet"
    with Trace(tmp_path / "t", spark(session)) as trace:
        with pytest.raises(UsageError, match="nothing"), trace.by_user():
            trace.rows("SELECT nothing FROM packets")
        with pytest.raises(UsageError), trace.by_user():
            trace.rows("SELEC")
        trace.make_table("few", "SELECT * FROM packets LIMIT 3")
        trace.make_table("few", "SELECT * FROM few LIMIT 2")
        assert np.array_equal(trace.columns("SELECT count(*) AS rows FROM few")["rows"], [2])
        trace.drop("few", "none")
        with pytest.raises(UsageError, match="few"), trace.by_user():
            trace.rows("SELECT * FROM few")
        data = bytearray(file.read_bytes())
        data[4:64] = bytes(60)
        file.write_bytes(data)
        with pytest.raises(FormatError, match=r"000001\.parquet"):
            trace.rows("SELECT sum(time_ns) FROM packets")
