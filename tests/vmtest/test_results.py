# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from vmtest import VmtestError, results
from vmtest.boot import Outcome
from vmtest.kernels import Unpacked

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = Unpacked("6.12", "trixie", "6.12.1-amd64", "6.12.1-1", 7, "/nowhere")
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="good"/>
<testcase classname="tests.a" name="bad"><failure message="assert 1 == 2">trace</failure></testcase>
<testcase classname="tests.a" name="bad"><error message="teardown">trace</error></testcase>
<testcase classname="tests.b" name="broken"><error message="no fixture">trace</error></testcase>
<testcase classname="tests.b" name="absent"><skipped message="needs a NIC"/></testcase>
<testcase classname="tests.b" name="late"><skipped message="x"/><error message="teardown">trace</error></testcase>
</testsuite></testsuites>"""


def outcome(exit_code: int | None, *, timed_out: bool = False) -> Outcome:
    return Outcome(exit_code, timed_out, 12.0, 60.5)


def test_parse_junit_counts_each_test_once() -> None:
    tests = results.parse_junit(JUNIT)
    assert (tests.passed, tests.failed, tests.skipped) == (1, 3, 1)
    assert tests.failures["tests.a::bad"] == "assert 1 == 2"
    assert tests.skips == {"tests.b::absent": "needs a NIC"}


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        (outcome(0), "passed"),
        (outcome(1), "failed"),
        (outcome(5), "failed"),
        (outcome(None), "lost"),
        (outcome(None, timed_out=True), "timeout"),
    ],
    ids=["0", "1", "no test ran", "guest gone", "too long"],
)
def test_read_tells_how_a_run_ended(tmp_path: Path, ended: Outcome, verdict: str) -> None:
    assert results.read(KERNEL, ended, tmp_path).verdict == verdict


def test_read_believes_a_failed_test_more_than_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    assert results.read(KERNEL, outcome(0), tmp_path).verdict == "failed"


def test_read_takes_facts_and_probes(tmp_path: Path) -> None:
    (tmp_path / "facts.txt").write_text("btf_bytes=12\ntracers=function nop\n")
    (tmp_path / "probes.json").write_text('{"points": []}')
    result = results.read(KERNEL, outcome(0), tmp_path)
    assert result.facts == {"btf_bytes": "12", "tracers": "function nop"}
    assert result.probes == {"points": []}


@pytest.mark.parametrize("text", ["", "Error: no such command", "[]"])
def test_read_takes_no_probes_from_what_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "probes.json").write_text(text)
    assert results.read(KERNEL, outcome(0), tmp_path).probes is None


@pytest.mark.parametrize("junit", [JUNIT, None], ids=["tests", "no tests"])
def test_load_gives_what_write_wrote(tmp_path: Path, junit: str | None) -> None:
    if junit:
        (tmp_path / "junit.xml").write_text(junit)
    result = results.read(KERNEL, outcome(1), tmp_path)
    results.write(result, tmp_path / "6.12.json")
    assert results.load(tmp_path / "6.12.json") == result


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 99}', '{"schema": 1, "tests": null, "other": 1}'])
def test_load_refuses_what_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(VmtestError, match="Run the kernels again"):
        results.load(path)


def test_write_is_json_with_the_schema(tmp_path: Path) -> None:
    results.write(results.read(KERNEL, outcome(0), tmp_path), tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["schema"] == results.SCHEMA


def test_table_has_a_line_a_kernel(tmp_path: Path) -> None:
    bare = results.read(KERNEL, Outcome(None, timed_out=False, boot_s=None, total_s=3.4), tmp_path)
    (tmp_path / "junit.xml").write_text(JUNIT)
    full = results.read(KERNEL, outcome(1), tmp_path)
    heading, first, second = results.table([full, bare]).splitlines()
    assert heading.split() == ["kernel", "release", "verdict", "passed", "failed", "skipped", "boot", "s", "total", "s"]
    assert first.split() == ["6.12", "6.12.1-amd64", "failed", "1", "3", "1", "12", "60"]
    assert second.split() == ["6.12", "6.12.1-amd64", "lost", "-", "-", "-", "-", "3"]
