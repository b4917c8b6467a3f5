# SPDX-License-Identifier: Apache-2.0
"""``top``: which part of a CPU the live screen takes at one refresh a second, in a terminal of 80x24 and of 160x45.

Counted is the CPU time of the process in all of its threads, as its CPU clock has it, on the host as it is.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import threading
import time
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 3
_SIZES: Final = ((24, 80), (45, 160))
_SETTLE_S: Final = 12.0
_MEASURED_S: Final = 20.0
_WANTED: Final = 2.0
_PART: Final = 1 << 16
# Of the clock of a process: what its threads ran (CPUCLOCK_SCHED in the kernel).
_SCHEDULED: Final = 2


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    taken = {size: Spread.of(_part_of_a_cpu(size) * 100 for _ in range(rounds)) for size in _SIZES}
    yield f"{_MEASURED_S:.0f} s each; median of {rounds}; load of the host {os.getloadavg()[0]:.1f}\n"
    rows = [(f"{columns}x{lines}", part.shown(".1f"), f"{_WANTED:.0f}") for (lines, columns), part in taken.items()]
    yield table(("", "% of a CPU", "wanted"), rows) + "\n\n"


def _part_of_a_cpu(size: tuple[int, int]) -> float:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "hopscope", "top"])  # noqa: S606 # no shell is wanted
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
    time.sleep(_SETTLE_S)
    before_ns, begun_s = _run_ns(pid), time.monotonic()
    time.sleep(_MEASURED_S)
    taken_ns, passed_s = _run_ns(pid) - before_ns, time.monotonic() - begun_s
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(terminal)
    return taken_ns / 1e9 / passed_s


def _run_ns(pid: int) -> int:
    """Return for how long a process has run, in all of its threads, those that have ended as well."""
    return time.clock_gettime_ns(~pid << 3 | _SCHEDULED)


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, _PART):
            pass
    except OSError:
        pass
