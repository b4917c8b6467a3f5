# SPDX-License-Identifier: Apache-2.0
"""What a command is at stands on the last line of a terminal, and is gone before anything else is there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Final

from hopscope import progress

_PROGRAM: Final = """
import sys
from hopscope.gate import guarded, tell
from hopscope.progress import doing, progress
with guarded(for_good=False), progress():
    doing("reading \x1b[31m", 1, 3)
    sys.stdin.readline()
    tell("done")
    doing("reading more", 2, 3)
    sys.stdin.readline()
"""


def test_what_somebody_else_estimates_is_said_where_it_is_known() -> None:
    shares = iter([None, 0.254])
    step = progress._Step("making it", 0, 0, 5.0, lambda: next(shares))
    assert [progress._words(step, 3.0, 9.0) for _ in range(2)] == [
        "hopscope: making it, 6 s", "hopscope: making it, about 25% of it, 6 s",
    ]  # fmt: skip


def test_it_is_shown_until_something_is_printed() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stderr=theirs) as child:
        os.close(theirs)
        assert child.stdin is not None
        shown = b""
        while b"of 3" not in shown:
            shown += os.read(ours, 4096)
        child.stdin.write(b"\n")
        child.stdin.flush()
        while b"done" not in shown:
            shown += os.read(ours, 4096)
        child.stdin.close()
        child.wait()
    os.close(ours)
    first, *again, last = shown.decode().split("\r\x1b[K")
    assert first == ""
    assert all(each.startswith("hopscope: reading ?[31m, 1 of 3, ") for each in again if each)
    assert last == "done\r\n"
