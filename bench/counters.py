# SPDX-License-Identifier: Apache-2.0
"""What one reading of the counters of all namespaces takes, and what the tools take that people read them with."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, table, turns
from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NAMESPACES: Final = (1, 50)
# Of one namespace; the host's (softnet, interrupts, conntrack, sysctls) come on top of it, and are not asked of them.
TOOLS: Final = "nstat -az; ip -s -s link; tc -s qdisc; ss -s; cat /proc/net/sockstat6 /proc/net/udp /proc/net/udp6"
_TITLES: Final = {
    "counters": "ours, each second",
    "all": "ours, with settings",
    "tools": "nstat, ip, tc, ss, cat",
}


def run(rounds: int = 10) -> Iterator[str]:
    """Measure, and yield the report."""
    for count in NAMESPACES:
        with contextlib.ExitStack() as stack:
            inside = [stack.enter_context(Namespace()) for _ in range(count)]
            reader = stack.enter_context(CounterReader([each.inode for each in inside]))
            ways: dict[str, Callable[[], object]] = {
                "counters": partial(reader.read, settings=False),
                "all": reader.read,
                "tools": partial(by_tools, [each.pid for each in inside]),
            }
            numbers = len(reader.read().numbers)
            taken = [{name: cost(ways[name]) for name in order} for order in turns([*ways], rounds)]
        yield f"{count} namespaces, {numbers:,} numbers, median of {rounds} rounds\n{costs_table(taken)}\n\n"


def by_tools(pids: Sequence[int]) -> None:
    """Let the tools read the namespaces of these processes, one after the other."""
    for pid in pids:
        subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-c", TOOLS], check=True, stdout=subprocess.DEVNULL
        )


def cost(act: Callable[[], object]) -> tuple[float, float]:
    """Return wall time and CPU time of ours and of children, in ms."""
    began_s, used_s = time.perf_counter(), _used_s()
    act()
    return (time.perf_counter() - began_s) * 1e3, (_used_s() - used_s) * 1e3


def costs_table(rounds: Sequence[dict[str, tuple[float, float]]]) -> str:
    """Lay out ms, and how many times ours that is in the same round."""
    rows = []
    for name, title in _TITLES.items():
        wall, cpu = (Spread.of(taken[name][place] for taken in rounds) for place in (0, 1))
        ratio = Spread.of(taken[name][0] / taken["all"][0] for taken in rounds)
        rows.append((title, wall.shown(), cpu.shown(), ratio.shown(".2f")))
    return table(("", "ms", "ms of CPU", "to ours with settings"), rows)


def _used_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
