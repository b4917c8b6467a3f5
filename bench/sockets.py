# SPDX-License-Identifier: Apache-2.0
"""``sockets``: how long it takes to read TCP sockets with all that the kernel tells of them, ours and ss's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from bench.many_sockets import connected
from bench.measure import Spread, table, turns
from hopscope.errors import KernelError
from hopscope.kernel.sockets.decode import Decoded
from hopscope.kernel.sockets.filter_parse import USUAL
from hopscope.kernel.sockets.sock_diag import Arena, Request, SockDiag
from hopscope.kernel.sockets.table import TCP, Growing, State, join
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

ROUNDS: Final = 15
SOCKETS: Final = 10_000
MOST_SOCKETS: Final = 100_000
# As ss has it without -a.
_REQUEST: Final = Request(TCP, USUAL & ~(1 << State.LISTEN | 1 << State.CLOSE | 1 << State.SYN_RECV))
_WANTED: Final = {"dump": 0.7, "dump and parse": 0.5, "memory": 200}
# Less than what a socket takes, more than what the end of an answer does.
_SHORTEST_BYTES: Final = 400
_PEAK: Final = """
import sys
from hopscope.kernel.sockets.filter_parse import parse
from hopscope.verbs.sockets.collector import SocketOptions, SocketWatch
options = SocketOptions([6], parse([], int), namespaces=[int(sys.argv[1])], processes=False)
with SocketWatch(options) as watch:
    report = watch.interval()
status = open("/proc/self/status").read()
print(report.read, status.split("VmHWM:")[1].split()[0])
"""


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with Namespace() as namespace, connected(namespace, SOCKETS):
        arena = Arena()
        variants: dict[str, Callable[[], int]] = {
            "ss -tin": lambda: _ss(namespace, "-tin"),
            "ss -tinm": lambda: _ss(namespace, "-tinm"),
            "dump": lambda: _received(namespace),
            "dump and parse": lambda: _parsed(namespace, arena),
            "hopscope sockets": lambda: _verb(namespace),
        }
        for act in variants.values():
            act()
        measured = [{name: _timed_ms(variants[name]) for name in order} for order in turns([*variants], rounds)]
    yield f"{SOCKETS:,} TCP sockets over lo, median of {rounds} rounds\n{times_table(measured)}\n"
    yield f"wanted: dump {_WANTED['dump']}, dump and parse {_WANTED['dump and parse']} times ss -tin\n\n"
    with Namespace() as namespace, connected(namespace, MOST_SOCKETS):
        count, peak_mb = _peak(namespace)
    yield f"two looks at {count:,} sockets and their difference: {peak_mb:.0f} MB at most (RSS)\n"
    yield f"wanted: under {_WANTED['memory']} MB\n"


def times_table(rounds: list[dict[str, float]]) -> str:
    """Lay out the time of each, and how much of ss's that is."""
    rows = []
    for name in rounds[0]:
        cost = Spread.of(taken[name] for taken in rounds)
        times = Spread.of(taken[name] / taken["ss -tin"] for taken in rounds)
        rows.append([name, cost.shown(), f"{times.median:.2f}"])
    return table(("", "ms", "times ss -tin"), rows)


def _timed_ms(act: Callable[[], int]) -> float:
    start_s = time.perf_counter()
    count = act()
    taken_ms = (time.perf_counter() - start_s) * 1e3
    if count < SOCKETS:
        raise KernelError(f"Only {count:,} of {SOCKETS:,} sockets were seen")
    return taken_ms


def _ss(namespace: Namespace, options: str) -> int:
    # Started from a thread that is in the namespace: nothing but ss is in its time.
    done = namespace.call(subprocess.run, ["ss", options], stdout=subprocess.DEVNULL, check=True)
    return SOCKETS if done.returncode == 0 else 0


def _verb(namespace: Namespace) -> int:
    command = [sys.executable, "-m", "hopscope", "sockets", "--tcp", f"--netns={namespace.inode}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | {"LANG": "C"})
    return SOCKETS if f"{SOCKETS:,} sockets" in done.stdout else 0


def _parsed(namespace: Namespace, arena: Arena) -> int:
    diag = namespace.call(SockDiag)
    try:
        rows = Growing()
        for part in diag.dump([_REQUEST], arena):
            rows.append(part.rows)
        return len(rows)
    finally:
        diag.close()


def _received(namespace: Namespace) -> int:
    """Receive the same and look only for its end; return how many sockets that must have been."""
    received = 0

    def counted(data: NDArray[np.uint8], ends: NDArray[np.int64], _sequence: int) -> Decoded:
        nonlocal received
        received += len(data)
        ended = int(ends[-1]) - (int(ends[-2]) if len(ends) > 1 else 0) < _SHORTEST_BYTES
        return Decoded(join([]), interrupted=False, ended=ended, error=0, tcp_info_bytes=0)

    _parsed(namespace, Arena(decoder=counted))
    return received // _SHORTEST_BYTES


def _peak(namespace: Namespace) -> tuple[int, float]:
    command = [sys.executable, "-c", _PEAK, str(namespace.inode)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    count, peak_kb = done.stdout.split()
    return int(count), int(peak_kb) * 1024 / 1e6
