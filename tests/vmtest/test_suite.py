# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vmtest import VmtestError, setup, suite

if TYPE_CHECKING:
    from pathlib import Path


def test_pytest_command_names_the_tests_that_are_there(tmp_path: Path) -> None:
    there = suite.TESTS[0]
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).touch()
    command = suite.pytest_command(repository=tmp_path)
    assert command[0] == sys.executable
    assert [word for word in command if word.startswith("tests/")] == [there]


def test_the_tests_are_in_the_tree() -> None:
    for tests in (suite.TESTS, suite.NIC_TESTS, suite.PAIR_TESTS):
        assert [word for word in suite.pytest_command(tests) if word.startswith("tests/")] == list(tests)


def test_pytest_command_without_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VmtestError, match=suite.TESTS[0]):
        suite.pytest_command(repository=tmp_path)


@pytest.mark.slow
def test_guest_commands_end_with_the_exit_code_of_the_command(tmp_path: Path) -> None:
    script = suite.guest_commands(["sh", "-c", "echo 'a  b'; exit 7"]).replace("/run/vmtest", str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "a  b\n")
    assert f"release={os.uname().release}" in (tmp_path / suite.FACTS_FILE).read_text().splitlines()


def test_the_command_finds_what_probes_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hopscope = tmp_path / "hopscope"
    hopscope.write_text("#!/bin/sh\necho said $*\n")
    hopscope.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    script = suite.guest_commands(["sh", "-c", 'cat "$HOPSCOPE_PROBES"']).replace("/run/vmtest", str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "said probes --json\n"


def test_guest_commands_load_modules_first() -> None:
    assert suite.guest_commands(["true"], ["igb", "e1000e"]).startswith("modprobe -a igb e1000e\n")
    assert "modprobe" not in suite.guest_commands(["true"])


def test_missing_names_packages_whose_program_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "_SYSTEM_FOLDERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup.missing() == list(setup.REQUIREMENTS)
    program = tmp_path / setup.REQUIREMENTS["cpio"]
    program.write_text("")
    program.chmod(0o755)
    assert setup.missing() == [name for name in setup.REQUIREMENTS if name != "cpio"]
