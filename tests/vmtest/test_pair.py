# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vmtest import __main__ as main
from vmtest import boot, emulator, pair, setup
from vmtest.kernels import Unpacked

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = [Unpacked(label, "suite", f"{label}.1-amd64", f"{label}.1-1", 7, "/some where/tree") for label in ("1", "2")]
CABLES = 'case "$*" in *"-netdev help") echo dgram ;; esac'
# A guest that runs no kernel: of its arguments it takes the folders that it shares, and its script is what it acts.
ACTOR = """\
for word; do
  case "$word" in --rwdir=/run/vmtest=*) out=${word#*=*=} ;; --rwdir=/run/pair=*) shared=${word#*=*=} ;; esac
done
date +%s.%N >"$out/began"
if grep -q pair_server "$out/guest.sh"; then
  touch "$shared/ready"
  until [ -e "$shared/done" ]; do sleep 0.05; done
  code=0
else
  until [ -e "$shared/ready" ]; do sleep 0.05; done
  code=7
fi
echo $code >"$out/exit-code"
"""


@pytest.fixture
def actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in the places of virtme-run and of QEMU."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("virtme-run", ACTOR), (emulator.PROGRAM, CABLES)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(setup, "missing", list)
    monkeypatch.setattr(setup, "search_path", lambda: f"{programs}:/usr/bin:/bin")


@pytest.mark.usefixtures("actors")
def test_the_second_ends_when_the_first_has(tmp_path: Path) -> None:
    outcomes = pair.run(KERNELS, ["true"], tmp_path / "out", tmp_path, timeout_s=60)
    assert [outcome.exit_code for outcome in outcomes] == [7, 0]


@pytest.mark.usefixtures("actors")
def test_the_ends_of_the_cable_fit(tmp_path: Path) -> None:
    ends = []
    for number, kernel in enumerate(KERNELS):
        machine = emulator.with_cable(tmp_path, tmp_path, number, {pair.SHARED: tmp_path})
        words = boot.command_line(kernel, tmp_path, 60, machine)
        assert f"--rwdir={pair.SHARED}={tmp_path}" in words
        (cable,) = [word for word in words if word.startswith("dgram,")]
        ends.append(dict(part.split("=") for part in cable.split(",")[1:]))
    assert ends[0]["local.path"] == ends[1]["remote.path"] != ends[0]["remote.path"] == ends[1]["local.path"]


def test_guest_commands_end_with_the_exit_code_of_the_command() -> None:
    script = pair.guest_commands(1, ["sh", "-c", "exit 7"])
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert pair.ADDRESSES[1] in script
    assert pair.ADDRESSES[0] not in script
    assert script.splitlines()[-1] == "sh -c 'exit 7'"


@pytest.mark.parametrize(
    ("words", "alone", "together"),
    [
        ("", ["5.10", "6.1", "6.12", "7.x"], list(pair.DEFAULT)),
        ("--kernel 6.1", ["6.1"], None),
        ("--pair 6.12 6.1", [], ["6.12", "6.1"]),
        ("--kernel 5.10 --pair 6.12 6.12", ["5.10"], ["6.12", "6.12"]),
    ],
)
def test_what_is_booted(
    words: str, alone: list[str], together: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(main, "_run_all", lambda chosen, arguments: asked.append((chosen, arguments.pair)) or 0)
    assert main.main(words.split()) == 0
    ((chosen, pair_of),) = asked
    assert ([kernel.label for kernel in chosen], pair_of) == (alone, together)
