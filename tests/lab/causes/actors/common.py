# SPDX-License-Identifier: Apache-2.0
"""What the processes of a scenario share. They import nothing but Python's own, so that they start in 30 ms.

Each takes its options as JSON, says ``ready`` when it is, and prints what it saw as JSON in the end. All times are
nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

Options = dict[str, Any]
STAMP: Final = struct.Struct("=q")
SHORTEST_BYTES: Final = STAMP.size
LIMIT_S: Final = 8.0
# In the folder of a server: the number of the thread that answers, and its Unix socket.
WORKER: Final = "worker"
SOCKET: Final = "socket"
_POLICIES: Final = {"fifo": os.SCHED_FIFO, "batch": os.SCHED_BATCH}
# struct tcp_info: where it has which number, microseconds for times.
_TCP_INFO: Final = {
    "srtt_us": ("I", 68),
    "ssthresh": ("I", 76),
    "snd_cwnd": ("I", 80),
    "retransmits": ("I", 100),
    "pacing_rate_bytes_s": ("Q", 104),
    "busy_us": ("Q", 168),
    "receiver-window_us": ("Q", 176),
    "send-buffer_us": ("Q", 184),
    "snd_wnd": ("I", 228),
    "rcv_wnd": ("I", 232),
}


def begin(name: str, options: Options) -> None:
    """Become what the options say; whatever happens, the process ends within LIMIT_S."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    Path("/proc/self/comm").write_text(f"hs-{name}")
    if "cgroup" in options:
        Path(options["cgroup"], "cgroup.procs").write_text(str(os.getpid()))
    if "cpu" in options:
        os.sched_setaffinity(0, {options["cpu"]})
    if "nice" in options:
        os.nice(options["nice"])
    if "policy" in options:
        policy = _POLICIES[options["policy"]]
        os.sched_setscheduler(0, policy, os.sched_param(options.get("priority", 0)))


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def report(**found: Any) -> None:  # noqa: ANN401 - whatever JSON can have
    say(json.dumps(found))


def spin(ms: float) -> None:
    end_ns = time.monotonic_ns() + round(ms * 1e6)
    while time.monotonic_ns() < end_ns:
        pass


class Held:
    """When a cause is made, by the clock of who makes it."""

    def __init__(self) -> None:
        self.intervals: dict[str, list[tuple[int, int]]] = {}

    @contextmanager
    def by(self, cause: str) -> Iterator[None]:
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.intervals.setdefault(cause, []).append((began_ns, time.monotonic_ns()))


class Steps:
    """What a thread does instead of reading."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._silent, self._kept_open = os.pipe()
        self._lock = threading.Lock()
        self._lock.acquire()

    def do(self, step: tuple[str, float] | None, cause: str = "") -> None:
        """Sleep (`sleep`, `poll` of another descriptor, `futex`) or compute (`spin`) for so many ms."""
        if step is None:
            return
        kind, ms = step
        with self._held.by(cause or ("reader-running" if kind == "spin" else "reader-asleep")):
            if kind == "spin":
                spin(ms)
            elif kind == "poll":
                select.select([self._silent], [], [], ms / 1e3)
            elif kind == "futex":
                self._lock.acquire(timeout=ms / 1e3)
            else:
                time.sleep(ms / 1e3)


class Schedstat:
    """What the scheduler says of a thread, by default this one."""

    def __init__(self, tid: int | None = None) -> None:
        self._fd = os.open(f"/proc/{tid or 'thread-self'}/schedstat", os.O_RDONLY)

    def waited_ns(self) -> int:
        """Return for how long it wanted a CPU and had none, so far."""
        return int(os.pread(self._fd, 100, 0).split()[1])


def tcp_info(sock: socket) -> dict[str, int]:
    """Return what the kernel says of a connection; older ones do not say all of it."""
    data = sock.getsockopt(6, 11, 256)
    return {
        name: struct.unpack_from(f"={code}", data, place)[0]
        for name, (code, place) in _TCP_INFO.items()
        if place + struct.calcsize(code) <= len(data)
    }
