# SPDX-License-Identifier: Apache-2.0
"""What runs on this host that sets clocks, and what it says of them."""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
# chronyc -c tracking: reference, name, stratum, …, offset from NTP time ("system time"), last offset, RMS offset,
# frequency, its residual, skew, root delay, root dispersion
_TRACKING: Final = ("chronyc", "-n", "-c", "tracking")
_NAME, _STRATUM, _SYSTEM_TIME, _RMS, _ROOT_DELAY, _ROOT_DISPERSION = 1, 2, 4, 6, 10, 11
_DATA_SET: Final = ("pmc", "-u", "-b", "0", "GET CURRENT_DATA_SET")
_DATA_FIELDS: Final = ("offsetFromMaster", "meanPathDelay")
_DATA_FIELD: Final = re.compile(rf"^\s*({'|'.join(_DATA_FIELDS)})\s+(-?\d+(?:\.\d*)?)\s*$", re.MULTILINE)


def running(proc: Path = Path("/proc")) -> list[str]:
    """Return those that run in this PID namespace, with what chrony says of the clock."""
    found = sorted({KNOWN[comm] for comm in _comms(proc) if comm in KNOWN})
    return [
        f"{name} ({said})" if name == "chronyd" and (said := tracking(asked(_TRACKING))) else name for name in found
    ]


def tracking(answer: str) -> str:
    """Return what ``chronyc -c tracking`` says as a few words, nothing if it says nothing."""
    fields = answer.strip().split(",")
    try:
        off_ns, rms_ns = (round(float(fields[number]) * 1e9) for number in (_SYSTEM_TIME, _RMS))
    except (ValueError, OverflowError, IndexError):
        return ""
    return f"stratum {fields[_STRATUM]} by {fields[_NAME] or 'nobody'}, {off_ns:+,} ns, RMS {rms_ns:,} ns"


def chrony_bound_ns() -> int | None:
    """Return how far CLOCK_REALTIME may be off, as chronyd says; None if it does not.

    By chronyc's manual, *tracking*: the offset that is being corrected, the root dispersion, half of the root delay.
    """
    return tracking_bound_ns(asked(_TRACKING))


def tracking_bound_ns(answer: str) -> int | None:
    """Return the bound that is in an answer of ``chronyc -c tracking``."""
    fields = answer.strip().split(",")
    try:
        off, delay, dispersion = (float(fields[each]) for each in (_SYSTEM_TIME, _ROOT_DELAY, _ROOT_DISPERSION))
        return math.ceil((abs(off) + dispersion + delay / 2) * 1e9)
    except (ValueError, OverflowError, IndexError):
        return None


def ptp4l_bound_ns() -> int | None:
    """Return how far a clock that follows PTP may be off, as ptp4l says; None if it does not."""
    return data_set_bound_ns(asked(_DATA_SET))


def data_set_bound_ns(answer: str) -> int | None:
    """Return the bound that is in pmc's answer: the last offset, and all of the delay, which may be one direction's."""
    fields = {name: abs(float(value)) for name, value in _DATA_FIELD.findall(answer)}
    return math.ceil(sum(fields.values())) if len(fields) == len(_DATA_FIELDS) else None


def _comms(proc: Path) -> Iterable[str]:
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                yield (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()


def asked(command: Sequence[str]) -> str:
    """Return what a daemon's own program says, nothing if there is none or it takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        ).stdout
    return ""
