# SPDX-License-Identifier: Apache-2.0
"""The confusion matrix, its figures, and that a case is recorded and run again."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench import causes
from tests.lab.causes.case import Case, Plan, Ran
from tests.lab.causes.catalogue import case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.causes import Explained, Made

_RAN = Ran([(0, 1000, 0)], 0, {"reader-asleep": [(0, 900)]}, {}, {})


def explained(truth: dict[str, float], named: str, *, lacking: bool = False, share: float = 0.5) -> Explained:
    plan = Plan(truth, "who", {}, {}, lacking=lacking)
    said = [{"cause": named, "share": share, "culprit": "thread who", "sentence": ""}]
    return causes.Explained(causes.Made(Case("scenario", 7, 20_007, plan), _RAN, 0, ""), named, said)


ASLEEP = {"reader-asleep": 1.0}
SOME = [
    explained(ASLEEP, "reader-asleep", share=0.8),
    explained(ASLEEP, "pacing"),
    explained({"reader-asleep": 0.7, "cork": 0.3}, "reader-asleep"),
    explained({}, "none"),
    explained(ASLEEP, "unknown", lacking=True),
    explained(ASLEEP, "cork", lacking=True),
]


def test_matrix_has_a_row_for_each_truth_and_a_column_for_each_name() -> None:
    head, *rows = causes.matrix(SOME).splitlines()
    assert head.split() == ["a", "b", "c", "d", "e"]
    names = {row.split()[0]: row.split()[1:] for row in rows if row.split()[0] in "abcde"}
    assert names == {
        "c": ["reader-asleep", "1", "2"],
        "e": ["none", "1"],
        "a": ["pacing"],
        "b": ["cork"],
        "d": ["unknown"],
    }
    (lacks,) = [row for row in rows if "(evidence lacks)" in row]
    assert [lacks.ljust(len(head))[head.index(letter)] for letter in "abcde"] == [" ", "1", " ", "1", " "]


def test_figures_count_each_kind_of_case() -> None:
    lines = causes.figures(SOME).splitlines()
    assert [line.split()[-4:] for line in lines[1:3]] == [["2", "3", "66.7", "95%"], ["cause", "1", "2", "50.0"]]
    assert [line.split()[-4:] for line in lines[4:6]] == [["1", "2", "50.0", "100%"], ["1", "1", "100.0", "95%"]]
    assert "unknown in 1 of 2" in lines[6]
    # 80 % and 50 % were said, it was 90 %.
    assert "25.0% off (median), 40% at most; the culprit is right in 2 of 2" in lines[7]


def test_a_case_that_is_as_meant_at_last_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    awake = replace(_RAN, intervals={})
    runs = iter([awake, awake, _RAN])
    monkeypatch.setattr(Case, "run", lambda *_: next(runs))
    made = causes.make(Case("scenario", 7, 20_007, Plan(ASLEEP, "", {}, {})))
    assert (made.attempt, made.why_not) == (2, "")


@pytest.mark.root
def test_wrong_ones_are_told_with_how_to_run_them() -> None:
    def ask(asked: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
        for verb, _, _, port, _ in asked:
            assert verb == "explain"
            named = "pacing" if int(port) % 5000 == 5 else None
            yield json.dumps({"finding": named, "causes": []}), ""

    text = "".join(causes.judged([case("healthy, idle", 0, 1), case("cork", 5, 1)], 1, ask))
    assert "2 cases of seed 1" in text
    (wrong,) = [line for line in text.splitlines() if line.startswith("wrong: ")]
    assert wrong.startswith('wrong: "cork": cork (cork ')
    assert wrong.endswith("named pacing (); python -m bench.causes --seed 1 --case 5")


def test_a_command_that_fails_is_told_apart_from_one_that_names_none(tmp_path: Path) -> None:
    said, why = causes._answer(["report", "messages", str(tmp_path)])
    assert (said, bool(why)) == ("", True)
    made = causes.Made(case("cork", 5, 1), _RAN, 0, "")
    assert causes._read(made, said, why).named == "failed"
    assert causes._read(made, '{"finding": null, "causes": []}', "").named == "none"


@pytest.mark.root
def test_what_the_recorder_wrote_has_the_case_by_its_port(tmp_path: Path) -> None:
    made: Made
    with causes.recorded(tmp_path / "trace", ("-P", "all")):
        made = causes.make(case("cork", 0, 1))
    port = str(made.case.at(made.attempt))
    argv = [*causes._OURS, "report", "messages", str(tmp_path / "trace"), "--port", port, "--json", "--limit", "0"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    messages = [row for row in map(json.loads, said.splitlines()) if "total_ns" in row]
    assert len(messages) == len(made.ran.messages)
    assert sum(row["total_ns"] for row in messages) == pytest.approx(made.ran.total_ns, rel=0.05)
