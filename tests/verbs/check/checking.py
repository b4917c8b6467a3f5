# SPDX-License-Identifier: Apache-2.0
"""``hopscope check`` while something happens between its two readings, and at no other time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.lab.command import ended, start, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def begun(*options: object) -> subprocess.Popen[str]:
    """Start a check that does not read a second time before it is told to."""
    return start("check", "-d", 3600, *options)


def told(child: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Have it read again; return its output, its complaints and its exit code."""
    child.send_signal(signal.SIGINT)
    code, out, complaints = ended(child)
    return out, complaints, code


def while_it_waits(act: Callable[[], object], *options: object) -> tuple[str, str, int]:
    """Act between the two readings; return the output, the complaints and the exit code."""
    child = begun(*options)
    eventually(lambda: waits(child), "it does not read")
    act()
    return told(child)
