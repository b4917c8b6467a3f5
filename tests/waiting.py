# SPDX-License-Identifier: Apache-2.0
"""Waiting for what comes in its own time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
# Nothing here takes longer by itself, also on a slow machine: a bound for a hung test, not a measurement.
TIMEOUT_S = 240.0
# The first look after that time; later ones after a part of the time that has passed, as many of them start a process.
_LOOK_S = 0.01
_LOOK_AFTER = 0.1
_LOOK_LATEST_S = 0.2


def eventually(condition: Callable[[], T], what: str = "it never happens") -> T:
    """Wait until a condition holds, and return what it said; fail with `what` if it never does."""
    begun_s = time.monotonic()
    while not (found := condition()):
        passed_s = time.monotonic() - begun_s
        assert passed_s < TIMEOUT_S, what
        time.sleep(min(max(passed_s * _LOOK_AFTER, _LOOK_S), _LOOK_LATEST_S))
    return found


def state(pid: int) -> str:
    """Return the letter of a process's state, as ps has it; nothing if it has ended and was waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def wait_ended(pid: int) -> None:
    """Wait until a process has ended, waited for or not."""
    eventually(lambda: state(pid) in {"", "Z"}, f"process {pid} does not end")
