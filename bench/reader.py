# SPDX-License-Identifier: Apache-2.0
"""``reader``: what the process ``hopscope rx`` takes: CPU and memory under load, and how soon it is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import tools
from bench.measure import Spread, table, turns
from bench.traffic import cpu_ns, saturated
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 15
_WATCH_S: Final = 10
# The start is not the steady state.
_SETTLE_S: Final = 2
_HELP: Final = {
    "hopscope --help": (sys.executable, "-m", "hopscope", "--help"),
    "python -c pass": (sys.executable, "-c", "pass"),
}
_WANTED: Final = {"cpu": 1, "memory": 120, "help": 150, "attached": 1000}


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    starts = [{name: _start_ms(_HELP[name]) for name in order} for order in turns([*_HELP], rounds)]
    attached = [{name: _attach_ms(name) for name in order} for order in turns([*tools.RX_TOOLS], rounds)]
    rows = [
        *([name, Spread.of(taken[name] for taken in starts).shown(".0f"), "ms"] for name in _HELP),
        *(
            [f"{name}: start to attached", Spread.of(taken[name] for taken in attached).shown(".0f"), "ms"]
            for name in tools.RX_TOOLS
        ),
    ]
    with Namespace() as namespace:
        for load in ("tcp", "udp"):
            with saturated(namespace, load):
                cpu_percent, memory_mb = watched(tools.RX, _WATCH_S)
            rows.append([f"rx: CPU, {load}, {_WATCH_S} s", f"{cpu_percent:.2f}", "% of a core"])
            rows.append([f"rx: memory, {load}", f"{memory_mb:.0f}", "MB (RSS)"])
    yield table(("", "median (quartiles)", "unit"), rows) + "\n"
    yield (
        "wanted: CPU under {cpu} %, memory under {memory} MB, --help under {help} ms, "
        "attached within {attached} ms\n".format(**_WANTED)
    )


def _start_ms(command: tuple[str, ...]) -> float:
    start_s = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start_s) * 1e3


def _attach_ms(name: str) -> float:
    start_s = time.perf_counter()
    with tools.started(tools.RX_TOOLS[name]):
        return (time.perf_counter() - start_s) * 1e3


def watched(tool: tools.Tool, seconds: float) -> tuple[float, float]:
    """Return the CPU time of a tool in percent of a core, and its memory in MB, once it is in full swing."""
    with tools.started(tool) as pid:
        time.sleep(_SETTLE_S)
        start_s, before_ns = time.perf_counter(), cpu_ns(pid)
        time.sleep(seconds)
        spent_ns = cpu_ns(pid) - before_ns
        return spent_ns / (time.perf_counter() - start_s) / 1e7, resident_bytes(pid) / 1e6


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
