# SPDX-License-Identifier: Apache-2.0
"""What runs on this host that sets clocks, and what it says of them."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# /proc/PID/comm has 15 characters.
KNOWN: Final = {
    "chronyd": "chronyd",
    "ntpd": "ntpd",
    "ntpsec": "ntpsec",
    "openntpd": "openntpd",
    "ptp4l": "ptp4l",
    "phc2sys": "phc2sys",
    "timemaster": "timemaster",
    "systemd-timesyn": "systemd-timesyncd",
}
_ANSWER_S: Final = 2.0
# chronyc -c tracking: reference, name, stratum, …, offset from NTP time ("system time"), last offset, RMS offset
_NAME, _STRATUM, _SYSTEM_TIME, _RMS = 1, 2, 4, 6
_LEAST_FIELDS: Final = 7


def running(proc: Path = Path("/proc")) -> list[str]:
    """Return those that run in this PID namespace, with what chrony says of the clock."""
    found = sorted({KNOWN[comm] for comm in _comms(proc) if comm in KNOWN})
    return [f"{name} ({said})" if name == "chronyd" and (said := tracking(_ask_chrony())) else name for name in found]


def tracking(answer: str) -> str:
    """Return what ``chronyc -c tracking`` says as a few words, nothing if it says nothing."""
    fields = answer.strip().split(",")
    if len(fields) < _LEAST_FIELDS:
        return ""
    try:
        off_ns, rms_ns = (round(float(fields[number]) * 1e9) for number in (_SYSTEM_TIME, _RMS))
    except (ValueError, OverflowError):
        return ""
    return f"stratum {fields[_STRATUM]} by {fields[_NAME] or 'nobody'}, {off_ns:+,} ns, RMS {rms_ns:,} ns"


def _comms(proc: Path) -> Iterable[str]:
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                yield (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()


def _ask_chrony() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ["chronyc", "-n", "-c", "tracking"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        ).stdout
    return ""
