# SPDX-License-Identifier: Apache-2.0
"""Statements of the analyses have no word but these, which DuckDB and Spark are to share.

Whether they do, tests/store/test_spark.py says, on a machine that has a Spark: run it before another one is added.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from hopscope.store.engine import DuckDB
from hopscope.store.trace import Trace
from tests.lab.small_trace import small
from tests.shared import first
from tests.verbs.report.every_report import TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

WORDS = frozenset({
    "ALL", "AND", "AS", "BETWEEN", "BIGINT", "BOOLEAN", "BY", "CASE", "CAST", "CURRENT", "DECIMAL", "DESC", "DISTINCT",
    "ELSE", "END", "EXCEPT", "EXISTS", "FALSE", "FOLLOWING", "FROM", "FULL", "GROUP", "HAVING", "IGNORE", "IN",
    "INTEGER",
    "IS", "JOIN", "LAST", "LEFT", "LIKE", "LIMIT", "NOT", "NULL", "NULLS", "ON", "OR", "ORDER", "OVER", "PARTITION",
    "PRECEDING", "RANGE", "ROW", "ROWS", "SELECT", "SMALLINT", "STRING", "THEN", "TRUE", "UNBOUNDED", "UNION",
    "VALUES", "WHEN", "WHERE", "WINDOW", "WITH",
})  # fmt: skip
FUNCTIONS = frozenset({
    "bool_or", "ceil", "coalesce", "concat", "count", "floor", "greatest", "hex", "lag", "last_value", "lead", "least",
    "length", "log2", "lower", "lpad", "max", "max_by", "min", "min_by", "power", "replace", "row_number", "rpad",
    "sum", "translate",
})  # fmt: skip
SIGNS = frozenset({"(", ")", ",", ".", "*", "+", "-", "/", "%", "<", "<=", "<>", ">", ">=", "=", "||"})

TEXTS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
NAMED_COLUMNS = re.compile(r"\bAS [a-z]\w*\(")  # looks like a function


def foreign(statement: str) -> set[str]:
    """Return what is in a statement that engines may not share."""
    bare = NAMED_COLUMNS.sub("AS (", TEXTS.sub("", statement))
    words, functions = re.findall(r"\b[A-Z][A-Z_]*\b", bare), re.findall(r"\b([a-z_]\w*)\(", bare)
    signs = re.findall(r"[(),.]|[^\w\s(),.]+", bare)
    return ({*words} - WORDS) | ({*functions} - FUNCTIONS) | ({*signs} - SIGNS)


class Recorded(DuckDB):
    """Keeps what reports ask it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.statements: list[str] = []

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        self.statements.append(query)
        return super().columns(query)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        self.statements.append(query)
        return super().rows(query)

    def make_table(self, name: str, query: str) -> None:
        self.statements.append(query)
        super().make_table(name, query)

    def make_view(self, name: str, query: str) -> None:
        self.statements.append(query)
        super().make_view(name, query)

    def copy_lines(self, query: str, out: BinaryIO) -> int:
        self.statements.append(query)
        return super().copy_lines(query, out)


@pytest.mark.parametrize("name", first(reversed(TRACES)))
def test_statements_keep_to_what_engines_share(name: str, tmp_path: Path) -> None:
    make, reports = TRACES[name]
    folder = make(tmp_path / "trace")
    engine = Recorded(folder)
    with Trace(folder, engine) as trace:
        for report in reports.values():
            report(trace)
    assert len(set(engine.statements)) > 100
    assert {word: each for each in engine.statements for word in foreign(each)} == {}


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT CAST(a AS VARCHAR), to_hex(b) FROM t", {"VARCHAR", "to_hex"}),
        ("SELECT a FROM t QUALIFY row_number() OVER (ORDER BY b) = 1", {"QUALIFY"}),
        ("SELECT a // 2, b::INTEGER, c[1] FROM t", {"//", "::", "[", "]"}),
        ("SELECT count(*) FILTER (WHERE a) FROM t USING SAMPLE 5", {"FILTER", "USING", "SAMPLE"}),
        ("SELECT a FROM t ASOF JOIN u ON t.b >= u.b", {"ASOF"}),
        ("SELECT 'to_hex( ::', \"VARCHAR\" FROM (VALUES (1, 2)) AS t(a, b)", set()),
    ],
)
def test_what_one_engine_knows_alone_is_found(statement: str, found: set[str]) -> None:
    assert foreign(statement) == found


def test_tables_of_a_query_are_those_that_it_reads(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace:
        assert trace.tables_of("SELECT * FROM packets p JOIN points USING (point)") == {"packets", "points"}
        assert trace.tables_of("WITH a AS (SELECT 1) SELECT * FROM a, nowhere") == {"nowhere"}
        assert trace.tables_of("SELECT 1; SELECT * FROM nowhere") == {"nowhere"}
        assert trace.tables_of("PIVOT nowhere ON a USING") == {"PIVOT", "nowhere", "ON", "a", "USING"}
