# SPDX-License-Identifier: Apache-2.0
"""What a process that reads a recording can still do, tried in such a process after its report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from hopscope.recorded.syscalls import NUMBERS
from hopscope.store.hosts import JOINED

_RECORDING: Final = Path(__file__).parents[1] / "recordings" / "tcp-rx"
# At its end, the process tries what a recording that has taken it over might.
_PROGRAM: Final = """
import atexit, ctypes, errno, fcntl, json, os, pathlib, socket, subprocess, sys, tempfile, termios, threading
from hopscope.recorded.syscalls import NUMBERS

NUMBERS = NUMBERS[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)

def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

def called(number):
    libc.syscall(number, *[ctypes.c_long(-1)] * 6)  # which no call accepts
    return errno.errorcode[ctypes.get_errno()]

def works():
    thread = threading.Thread(target=[].clear)
    thread.start()
    thread.join()
    if (pid := os.fork()) == 0:
        os._exit(7)
    one, other = socket.socketpair()
    one.send(b"x")
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), other.recv(9).decode()]

def layers_left():
    ruleset = (ctypes.c_uint64 * 1)(1)
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
        "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
        "unix": tried(lambda: socket.socket(socket.AF_UNIX)),
        "netlink": tried(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
        "datagrams": tried(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
        "type": tried(lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x")),
        "calls": {name: called(number) for name, number in NUMBERS.items()},
        "x32": called(0x4000_0000 | 39),
        "works": works(),
        "layers": layers_left(),
        "threads": threads_left(),
        "landlock": libc.syscall(444, None, 0, 1),
    }), file=sys.stderr)

atexit.register(try_all)
from hopscope.__main__ import main
main()
"""
# Begun with this, it has a kernel without Landlock: a filter answers ENOSYS to landlock_create_ruleset.
_WITHOUT_LANDLOCK: Final = """
import ctypes, struct
_code = b"".join(struct.pack("=HBBI", *line) for line in [
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7FFF0000),
])
_kept = ctypes.create_string_buffer(_code, len(_code))
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
assert ctypes.CDLL(None).prctl(22, 2, struct.pack("@HP", 4, ctypes.addressof(_kept))) == 0
"""
_FILES: Final = {"write", "change", "remove"}
_CALLS: Final = {"run", "connect", "udp", "unix", "netlink", "datagrams", "type"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "old").write_text("old")
    return folder


def after(outside: Path, *words: str, before: str = "") -> dict[str, Any]:
    argv = [sys.executable, "-c", f"OUTSIDE = {str(outside)!r}\n{before}{_PROGRAM}", *words]
    temporary = outside.parent / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
    return found


def refused(found: dict[str, Any]) -> set[str]:
    """Return what could not be done; files can be changed where the kernel has no Landlock to refuse it."""
    if found["landlock"] < 1:
        pytest.skip("this kernel has no Landlock (Linux 5.13)")
    return {name for name, outcome in found.items() if outcome == "PermissionError"}


def test_a_report_can_change_nothing_and_run_nothing(outside: Path) -> None:
    found = after(outside, "report", "hops", str(_RECORDING))
    assert refused(found) == _FILES | _CALLS
    assert found["threads"] == 0
    assert (outside / "old").read_text() == "old"


def test_calls_that_reading_does_not_need_are_refused_without_landlock(outside: Path) -> None:
    found = after(outside, "report", "hops", str(_RECORDING), before=_WITHOUT_LANDLOCK)
    assert found["landlock"] == -1
    assert {name for name, outcome in found.items() if outcome == "PermissionError"} == _CALLS
    numbers = NUMBERS[os.uname().machine]
    # Numbers that a kernel has not got are refused as well.
    outcomes = dict.fromkeys(numbers, "EPERM") | {"clone3": "ENOSYS", "seccomp": "EINVAL", "ioctl": "EBADF"}
    assert found["calls"] == outcomes
    assert found["x32"] == "EPERM"
    assert found["works"] == [7, "x"]  # threads, children, and pairs of connected sockets


@pytest.mark.parametrize("form", ["csv", "ctf"])
def test_an_export_can_change_nothing_besides_its_output(form: str, outside: Path) -> None:
    found = after(outside, "export", form, str(_RECORDING), "-o", str(outside / "out"))
    assert refused(found) == _FILES | _CALLS
    assert {each.name for each in outside.iterdir()} == {"old", "out"}


def test_the_hosts_of_a_recording_are_joined_in_it(outside: Path) -> None:
    recording = outside.parent / "recording"
    shutil.copytree(_RECORDING.with_name("two-hosts"), recording, ignore=shutil.ignore_patterns(JOINED))
    found = after(outside, "report", "summary", str(recording))
    assert (recording / JOINED).exists()
    if found["landlock"] >= 1:
        assert found["write"] == "PermissionError"


def test_a_query_that_is_unrestricted_is_not_confined(outside: Path) -> None:
    found = after(outside, "sql", "--unrestricted", str(_RECORDING), "SELECT 1")
    assert {found[name] for name in {*_FILES, *_CALLS} - {"connect", "type"}} == {"done"}
    assert "EPERM" not in {found["calls"][name] for name in ("socket", "bind", "execve", "unshare", "clone")}


def test_it_is_confined_once_however_many_recordings_it_reads(outside: Path) -> None:
    found = after(outside, "report", "compare", str(_RECORDING), str(_RECORDING))
    if found["landlock"] < 1:
        pytest.skip("this kernel has no Landlock (Linux 5.13)")
    assert found["layers"] == 15  # of 16
