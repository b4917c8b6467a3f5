# SPDX-License-Identifier: Apache-2.0
"""``make test`` is one run, although workers take a part of it: one summary, one exit code, nothing lost or left."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import shared

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
import os
import subprocess
from pathlib import Path

import pytest

def told(name):
    with Path("told").open("a") as file:
        file.write(f"{NAME} {name} {os.getpid()}\\n")

def test_that_passes():
    told("pass")

def test_that_fails():
    told("fail")
    assert NAME == "neither"

def test_that_is_skipped():
    pytest.skip(f"{NAME} cannot")

def test_that_passes_the_second_time():
    second = Path(NAME)
    if not second.exists():
        second.touch()
        pytest.fail("not yet")

@pytest.mark.flaky(reruns=0)
def test_that_leaves_something():
    subprocess.Popen(["sleep", "8"])
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree whose tests are shared as ours are, but for the patience with what they leave."""
    for folder, name in (("tests/trace", "computing"), ("tests/clock", "alone")):
        (tmp_path / folder).mkdir(parents=True)
        mark = "pytestmark = pytest.mark.root\n" if name == "alone" else ""
        (tmp_path / folder / f"test_{name}.py").write_text(f"NAME = {name!r}\n{MODULE}{mark}")
    for name in ("conftest.py", "shared.py", "leftovers.py"):
        text = (shared.HERE / name).read_text().replace("patience_s: float = 10.0", "patience_s: float = 0.5")
        text = re.sub(r"pytest_plugins = \[[^]]*\]", "", text)
        (tmp_path / "tests" / name).write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\naddopts = -raR --import-mode=importlib\n"
        "markers =\n    root\n    alone\n    slow\n    spark\n"
    )
    return tmp_path


def run(tree: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "--processes", "2", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.root
def test_both_parts_come_to_one_result(tree: Path) -> None:
    code, output = run(tree, "--reruns", "1")
    assert code == 1
    assert "2 failed, 6 passed, 2 skipped, 2 errors, 4 rerun in " in output.splitlines()[-1]
    for name in ("computing", "alone"):
        assert re.search(f"^SKIPPED .*: {name} cannot$", output, re.MULTILINE)
        assert re.search(f"^FAILED .*test_{name}.py::test_that_fails - ", output, re.MULTILINE)
        assert re.search(f"^ERROR .*test_{name}.py::test_that_leaves_something\\b", output, re.MULTILINE)
        assert re.search(f"^RERUN .*test_{name}.py::test_that_passes_the_second_time$", output, re.MULTILINE)
    assert len(re.findall("^E .*not yet", output, re.MULTILINE)) == 2
    assert len(re.findall(r"^E .*left behind by the tests: .*process \d+ \(sleep 8\)", output, re.MULTILINE)) == 2
    # What needs the machine alone came last, and in one process, which is none of the workers.
    told = [line.split() for line in (tree / "told").read_text().splitlines()]
    assert [name for name, _, _ in told] == ["computing"] * 3 + ["alone"] * 3
    workers, alone = ({pid for name, _, pid in told if name == wanted} for wanted in ("computing", "alone"))
    assert len(alone) == 1
    assert not workers & alone


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize(("words", "code"), [("tests -k nowhere", 5), ("tests/clock -k passes", 0)])
def test_a_part_may_have_no_tests(tree: Path, words: str, code: int) -> None:
    for name in ("computing", "alone"):
        (tree / name).touch()
    assert run(tree, *words.split())[0] == code


def test_nothing_runs_where_something_cannot_be_collected(tree: Path) -> None:
    (tree / "tests" / "trace" / "test_broken.py").write_text("def broken(:\n")
    code, output = run(tree)
    assert (code, (tree / "told").exists()) == (2, False)
    assert "1 error in " in output.splitlines()[-1]


def test_places_are_there() -> None:
    assert [place for place in shared.ALONE | shared.SLOW if not (shared.HERE / place).exists()] == []
