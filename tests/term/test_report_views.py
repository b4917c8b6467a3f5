# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json

import numpy as np

from hopscope.model.report import Column, Report, of_rows
from hopscope.term.report_lines import csv_lines, json_lines
from hopscope.term.report_table import render_report
from hopscope.term.terminal import Terminal

COLUMNS = (
    Column("hop", "text", "", "hop"),
    Column("count", "count", "", "count"),
    Column("p99_ns", "ns", "", "p99"),
    Column("at_ns", "at_ns", "", "at", rank=2),
    Column("part", "part", "", "share", rank=1),
)
ROWS = [("rx.driver → rx.core", 123_456, 41_300, 1_500_000_000, 0.25), ('a "b", c', 0, None, None, None)]


def report(**more: object) -> Report:
    return of_rows("hops", COLUMNS, ROWS, **more)


def test_table_scales_units_and_shows_what_is_missing() -> None:
    found = render_report(report(heading=["of a run"], notes=["lost: 7 events"], left_out=1_234), Terminal())
    assert found.splitlines() == [
        "of a run",
        "hop                  count     p99        at  share",
        "rx.driver → rx.core   123k  41.3µs  1.500000    25%",
        'a "b", c                 0       -         -      -',
        "and 1,234 more (--limit)",
        "lost: 7 events",
    ]


def test_narrow_terminal_loses_the_least_telling_columns() -> None:
    assert render_report(report(), Terminal(40)).splitlines()[0] == "hop                  count     p99"


def test_nothing_is_said_as_such() -> None:
    nothing = of_rows("hops", COLUMNS, [])
    assert render_report(nothing, Terminal()) == "No matching records in this trace."


def test_json_is_an_object_a_row_with_raw_units() -> None:
    first, second = map(json.loads, json_lines(report()))
    assert first == {
        "schema": "hopscope.report.hops/1",
        "hop": "rx.driver → rx.core",
        "count": 123_456,
        "p99_ns": 41_300,
        "at_ns": 1_500_000_000,
        "part": 0.25,
    }
    assert second["p99_ns"] is None


def test_identifier_of_64_bits_is_a_string_in_json() -> None:
    flow = Column("flow", "id", "", "flow")
    known = Report("any", (flow,), {"flow": np.array([-(1 << 63), (1 << 53) + 1], np.int64)})
    assert [json.loads(line)["flow"] for line in json_lines(known)] == ["-9223372036854775808", "9007199254740993"]
    some = of_rows("any", (flow,), [(None,), (7,)])
    assert [json.loads(line)["flow"] for line in json_lines(some)] == [None, "7"]
    assert list(csv_lines(some)) == ["flow", '""', "7"]


# Each with what stands for its values in JSON, 0x1f being a control character.
MIXED = {
    "whole": (np.array([-1, 1 << 62, 0]), ["-1", str(1 << 62), "0"]),
    "seen": (np.ma.MaskedArray(np.array([7, 8, 9]), [False, True, False]), ["7", "null", "9"]),
    "100 %": (np.array([0.1234567, np.nan, 3.0]), ["0.123457", "null", "3.0"]),
    "yes": (np.array([True, False, True]), ["true", "false", "true"]),
    'a "name"': (np.array(["%s", "→", "\x1f"], dtype=object), ['"%s"', '"\\u2192"', '"\\u001f"']),
    "any": (np.ma.MaskedArray(np.array([1, 1.0, "1"], dtype=object), [0, 0, 0]), ["1", "1.0", '"1"']),
    "gone": (np.ma.MaskedArray(np.array([True, 2.5, "x"], dtype=object), [0, 1, 1]), ["true", "null", "null"]),
}


def test_json_of_any_values_is_as_it_always_was() -> None:
    columns = [Column(name, "number", "", name) for name in MIXED]
    lines = [*json_lines(Report("any", columns, {name: values for name, (values, _) in MIXED.items()}))]
    assert lines == [
        '{"schema":"hopscope.report.any/1",'
        + ",".join(f"{json.dumps(name)}:{texts[row]}" for name, (_, texts) in MIXED.items())
        + "}"
        for row in range(3)
    ]


def test_many_rows_come_in_their_order() -> None:
    numbers = np.arange(50_000)
    many = Report(
        "any",
        [Column("a", "number", "", "a"), Column("b", "text", "", "b")],
        {"a": numbers, "b": np.array([f"t{number}" for number in numbers], dtype=object)},
    )
    wanted = [f'"a":{number},"b":"t{number}"' for number in numbers]
    assert [line.partition(",")[2][:-1] for line in json_lines(many)] == wanted
    assert [*csv_lines(many)][1:] == [f"{number},t{number}" for number in numbers]


def test_csv_is_read_back_as_it_was() -> None:
    rows = list(csv.reader(csv_lines(report())))
    assert rows[0] == [column.name for column in COLUMNS]
    assert rows[2] == ['a "b", c', "0", "", "", ""]
    lines = of_rows("any", [Column("text", "text", "", "text")], [("a\nb\rc",)])
    assert list(csv_lines(lines)) == ["text", '"a\nb\rc"']
