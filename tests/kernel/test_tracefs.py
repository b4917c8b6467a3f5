# SPDX-License-Identifier: Apache-2.0
"""The kernel's tracepoints, listed without a trace of it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hopscope.kernel.tracefs import Tracefs

pytestmark = pytest.mark.root
MOUNTINFO = Path("/proc/self/mountinfo")
LOOK = """
from hopscope.kernel.tracefs import Tracefs
with Tracefs() as tracefs:
    print(tracefs.number("sched", "sched_process_exec"))
"""


def mounts() -> list[str]:
    """Return where tracefs is mounted; other tests mount other file systems meanwhile."""
    return [line for line in MOUNTINFO.read_text().splitlines() if " - tracefs " in line]


def test_it_is_read_and_nothing_is_mounted() -> None:
    before, files = mounts(), set(os.listdir("/proc/self/fd"))  # noqa: PTH208 # numbers, no paths
    with Tracefs() as tracefs:
        assert ("tcp", "tcp_probe") in tracefs.matching("tcp", "*")
        assert tracefs.matching("sched", "sched_process_exec") == [("sched", "sched_process_exec")]
        assert tracefs.matching("*", "sched_process_ex[ei]?") == [
            ("sched", "sched_process_exec"),
            ("sched", "sched_process_exit"),
        ]
        assert tracefs.matching("nothing", "*") == []
        assert "field:pid_t old_pid" in tracefs.format("sched", "sched_process_exec")
        assert mounts() == before
    assert mounts() == before
    # What an earlier test left to the garbage collector may be closed by now.
    assert set(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208


def test_what_only_ftrace_itself_writes_is_not_listed() -> None:
    with Tracefs() as tracefs:
        assert ("ftrace", "print") not in tracefs.matching("ftrace", "*")


def test_where_it_is_mounted_that_is_used_and_its_options_stay() -> None:
    with Tracefs() as tracefs:
        mode = f"{stat.S_IMODE(os.fstat(tracefs._root).st_mode):o}"
    script = (
        "umount --lazy /sys/kernel/tracing 2>/dev/null; mount -t tracefs -o mode=755 tracefs /sys/kernel/tracing && "
        'stat -c %a /sys/kernel/tracing && "$0" -c "$1" && stat -c %a /sys/kernel/tracing; '
        f"mount -o remount,mode={mode} /sys/kernel/tracing"
    )
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable, LOOK]
    before, number, after = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    with Tracefs() as tracefs:
        assert int(number) == tracefs.number("sched", "sched_process_exec")
    assert (before, after) == ("755", "755")


def test_without_rights_one_sentence_says_so() -> None:
    code = (
        "import os\nfrom hopscope.errors import PrivilegeError\nfrom hopscope.kernel.tracefs import Tracefs\n"
        "os.setuid(65534)\ntry:\n    Tracefs()\nexcept PrivilegeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "tracefs, which lists the kernel's tracepoints, cannot be read (missing: CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH). "
        "Run hopscope as root (sudo hopscope), or give it CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH (docs/privileges.md)\n"
    )
