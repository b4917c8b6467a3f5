# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from vmtest import VmtestError, matrix, results

if TYPE_CHECKING:
    from pathlib import Path


def way(name: str, reason: str = "", *, chosen: bool = False) -> dict[str, Any]:
    return {"way": name, "granted": not reason, "chosen": chosen, "reason": reason}


def probes(**points: list[dict[str, Any]]) -> dict[str, Any]:
    return {"points": [{"point": f"rx.{name}", "ways": ways} for name, ways in points.items()]}


def result(label: str, said: dict[str, Any] | None, tests: results.Tests | None = None) -> results.Result:
    return results.Result(
        label, "trixie", f"{label}.1", f"{label}.1-1", "lost", None, tests, 9.0, 90.0, facts={}, probes=said
    )


def column(label: str, said: dict[str, Any] | None, tests: results.Tests | None = None) -> matrix.Column:
    return matrix.Column(label, result(label, said, tests), said)


OLD = column("5.10", probes(core=[way("fentry:f", chosen=True), way("kprobe:f")]), results.Tests(7, 1, 2))
NEW = column("host", probes(core=[way("tp_btf:t", chosen=True), way("fentry:f", "EPERM  at\nload")]))


def rows(page: str) -> list[list[str]]:
    lines = page.partition("## Ways to attach")[2].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_page_has_a_row_a_way_and_a_column_a_kernel() -> None:
    heading, _, *body = rows(matrix.page([OLD, NEW]))
    assert heading == ["probe point", "way", "5.10", "host"]
    assert body == [
        ["`rx.core`", "`fentry:f`", "**used**", "no (1)"],
        ["", "`kprobe:f`", "yes", "·"],
        ["", "`tp_btf:t`", "·", "**used**"],
    ]


def test_page_numbers_a_reason_once() -> None:
    refused = probes(core=[way("a", "EPERM"), way("b", "no BTF"), way("c", "EPERM")])
    page = matrix.page([column("6.1", refused)])
    assert [row[2] for row in rows(page)[2:]] == ["no (1)", "no (2)", "no (1)"]
    assert page.splitlines()[-2:] == ["1. EPERM", "2. no BTF"]


def test_page_says_that_a_refusal_has_no_reason() -> None:
    said = probes(core=[{"way": "a", "granted": False, "chosen": False, "reason": ""}])
    assert matrix.page([column("6.1", said)]).splitlines()[-1] == "1. no reason given"


def test_page_counts_tests_and_shows_a_run_without_any() -> None:
    page = matrix.page([OLD, NEW])
    assert "| 5.10 | 5.10.1 | trixie 5.10.1-1 | 7 | 1 | 2 |" in page
    assert "| host | host.1 | trixie host.1-1 | lost | | |" in page


def test_page_shows_a_kernel_that_said_nothing() -> None:
    body = rows(matrix.page([OLD, column("7.x", None)]))[2:]
    assert {row[3] for row in body} == {"·"}


def test_page_of_no_probe_points_is_refused() -> None:
    with pytest.raises(VmtestError, match="probe points"):
        matrix.page([column("6.1", None)])


def test_result_columns_are_in_the_order_of_the_kernels(tmp_path: Path) -> None:
    for label in ("7.x", "5.10", "6.12"):
        results.write(result(label, None), tmp_path / f"{label}.json")
    assert [found.heading for found in matrix.result_columns(tmp_path)] == ["5.10", "6.12", "7.x"]
