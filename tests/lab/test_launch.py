# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hopscope.lab import launch


def run_launcher(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-IS", launch.__file__, *arguments]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)


def test_run_becomes_the_program_with_its_status() -> None:
    result = run_launcher("run", str(os.getpid()), "sh", "-c", "echo $0 $1; exit 23", "a b", "c")
    assert (result.stdout, result.returncode) == ("a b c\n", 23)


def test_run_gives_the_program_default_signals() -> None:
    # SigIgn of /proc: SIGPIPE is 13 and SIGXFSZ 25, which Python ignores for itself.
    ignored = int(run_launcher("run", str(os.getpid()), "grep", "SigIgn", "/proc/self/status").stdout.split()[1], 16)
    assert not ignored & (1 << 12 | 1 << 24)


def test_run_says_which_program_is_missing() -> None:
    result = run_launcher("run", str(os.getpid()), "/no/such/program")
    assert result.returncode == launch.NOT_FOUND
    assert result.stderr == "/no/such/program: No such file or directory\n"


def test_run_starts_nothing_when_the_owner_is_gone_already() -> None:
    result = run_launcher("run", "1", "echo", "started")
    assert (result.stdout, result.returncode) == ("", 1)


@pytest.mark.root
def test_hold_takes_its_name_away_however_many_signals_come() -> None:
    path = launch.NETNS_DIR / f"hopscope-test-{os.getpid()}"
    argv = [sys.executable, "-IS", launch.__file__, "hold", str(os.getpid()), path.name]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert path.exists()
        while holder.poll() is None:
            holder.send_signal(signal.SIGTERM)
    assert not path.exists()
