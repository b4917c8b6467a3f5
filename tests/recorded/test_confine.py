# SPDX-License-Identifier: Apache-2.0
"""What a process that reads a recording can still do, tried in such a process after its report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hopscope.store.hosts import JOINED

_RECORDING: Final = Path(__file__).parents[1] / "recordings" / "tcp-rx"
# At its end, the process tries what a recording that has taken it over might.
_PROGRAM: Final = """
import atexit, ctypes, json, pathlib, socket, subprocess, sys, tempfile

def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

def layers_left():
    libc, ruleset = ctypes.CDLL(None), (ctypes.c_uint64 * 1)(1)
    fd = libc.syscall(444, ruleset, 8, 0)
    return next(done for done in range(99) if libc.syscall(446, fd, 0))

def threads_left():
    states = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/status")]
    return sum("NoNewPrivs:\t0" in state for state in states)

def try_all():
    folder = pathlib.Path(OUTSIDE)
    with tempfile.TemporaryFile() as own:
        own.write(b"x")
    print(json.dumps({
        "write": tried(lambda: (folder / "new").write_text("x")),
        "change": tried(lambda: (folder / "old").write_text("x")),
        "remove": tried((folder / "old").unlink),
        "run": tried(lambda: subprocess.run(["/bin/true"])),
        "connect": tried(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
        "layers": layers_left(),
        "threads": threads_left(),
        "landlock": ctypes.CDLL(None).syscall(444, None, 0, 1),
    }), file=sys.stderr)

atexit.register(try_all)
from hopscope.__main__ import main
main()
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "old").write_text("old")
    return folder


def after(outside: Path, *words: str) -> dict[str, object]:
    argv = [sys.executable, "-c", f"OUTSIDE = {str(outside)!r}\n{_PROGRAM}", *words]
    temporary = outside.parent / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, object] = json.loads(ended.stderr.splitlines()[-1])
    return found


def test_a_report_can_change_nothing_and_run_nothing(outside: Path) -> None:
    found = after(outside, "report", "hops", str(_RECORDING))
    if int(str(found["landlock"])) < 4:
        pytest.skip("this kernel has no Landlock that restricts TCP (Linux 6.7)")
    refused = {name for name, outcome in found.items() if outcome == "PermissionError"}
    assert refused == {"write", "change", "remove", "run", "connect"}
    assert found["threads"] == 0
    assert (outside / "old").read_text() == "old"


@pytest.mark.parametrize("form", ["csv", "ctf"])
def test_an_export_can_change_nothing_besides_its_output(form: str, outside: Path) -> None:
    found = after(outside, "export", form, str(_RECORDING), "-o", str(outside / "out"))
    if int(str(found["landlock"])) < 4:
        pytest.skip("this kernel has no Landlock that restricts TCP (Linux 6.7)")
    refused = {name for name, outcome in found.items() if outcome == "PermissionError"}
    assert refused == {"write", "change", "remove", "run", "connect"}
    assert {each.name for each in outside.iterdir()} == {"old", "out"}


def test_the_hosts_of_a_recording_are_joined_in_it(outside: Path) -> None:
    recording = outside.parent / "recording"
    shutil.copytree(_RECORDING.with_name("two-hosts"), recording, ignore=shutil.ignore_patterns(JOINED))
    found = after(outside, "report", "summary", str(recording))
    assert (recording / JOINED).exists()
    if int(str(found["landlock"])) >= 1:
        assert found["write"] == "PermissionError"


def test_a_query_that_is_unrestricted_is_not_confined(outside: Path) -> None:
    found = after(outside, "sql", "--unrestricted", str(_RECORDING), "SELECT 1")
    assert [found[name] for name in ("write", "change", "remove", "run")] == ["done"] * 4


def test_it_is_confined_once_however_many_recordings_it_reads(outside: Path) -> None:
    found = after(outside, "report", "compare", str(_RECORDING), str(_RECORDING))
    if int(str(found["landlock"])) < 1:
        pytest.skip("this kernel has no Landlock (Linux 5.13)")
    assert found["layers"] == 15  # of 16
