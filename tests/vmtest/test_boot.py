# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.waiting import wait_ended
from vmtest import VmtestError, boot, setup
from vmtest.kernels import Unpacked

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = Unpacked("6.12", "trixie", "6.12.1-amd64", "6.12.1-1", 7, "/some where/tree")


@pytest.fixture
def virtme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of virtme-run; it runs no guest."""
    program = tmp_path / "bin" / "virtme-run"
    program.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setattr(setup, "missing", list)
    return program


def act(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_guest_script_is_a_shell_script_with_any_folder() -> None:
    text = boot.guest_script(KERNEL, "echo done")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert "'/some where/tree/lib/modules/6.12.1-amd64'" in text


def test_boot_without_virtme_says_what_to_do(virtme: Path, tmp_path: Path) -> None:
    assert not virtme.exists()
    with pytest.raises(VmtestError, match="tools/setup vmtest"):
        boot.boot(KERNEL, "true", tmp_path / "out", timeout_s=5)


def test_boot_names_the_packages_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "missing", lambda: ["cpio"])
    with pytest.raises(VmtestError, match="missing here: cpio"):
        boot.boot(KERNEL, "true", tmp_path / "out", timeout_s=5)


def test_boot_gives_exit_code_and_output(virtme: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    act(virtme, f"date +%s.%N >{out}/began; echo said; echo kernel >&2; echo 3 >{out}/exit-code; exit 3")
    outcome = boot.boot(KERNEL, "true", out, timeout_s=60)
    assert (outcome.exit_code, outcome.timed_out) == (3, False)
    assert outcome.boot_s is not None
    assert (out / "output.txt").read_text() == "said\n"
    assert (out / "console.txt").read_text() == "kernel\n"


def test_boot_does_not_take_an_earlier_exit_code_for_its_own(virtme: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "exit-code").write_text("0\n")
    act(virtme, "exit 255")
    outcome = boot.boot(KERNEL, "true", out, timeout_s=60)
    assert outcome.exit_code is None
    assert not outcome.timed_out


@pytest.mark.slow
def test_boot_ends_a_guest_whose_time_is_over_with_all_below_it(virtme: Path, tmp_path: Path) -> None:
    act(virtme, f"sleep 1000 & echo $! >{tmp_path}/pid; wait")
    outcome = boot.boot(KERNEL, "true", tmp_path / "out", timeout_s=5)
    assert outcome.timed_out
    assert outcome.exit_code is None
    pid = int((tmp_path / "pid").read_text())
    wait_ended(pid)
