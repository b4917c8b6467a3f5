# SPDX-License-Identifier: Apache-2.0
"""What it costs to make named, counted stacks of samples: ours, and ``perf script`` with a minimal folding behind it.

CPU time for a thousand samples of kernel stacks, taken at the same rate, for as long and under the same load, in turns.
Ours counts in bulk while it samples, and names what is different; that is in the figure. Theirs is all done afterwards.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from bench.measure import Spread, table, turns
from bench.tools import ToolError
from bench.traffic import saturated
from hopscope.kernel.kallsyms import KernelSymbols
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.traffic import TrafficSetup
    from hopscope.lab import Namespace

HZ: Final = 999
_SECONDS: Final = 2.0
_DRAINS: Final = 8
_TITLES: Final = {
    "ours": "ours: counted, named",
    "script": "perf script",
    "folding": "folding its text",
}

# Of one measurement: ms of CPU time for a thousand samples, by what took it; and the samples.
Costs = dict[str, float]


def run(namespace: Namespace, setup: TrafficSetup, scratch: Path, rounds: int) -> Iterator[str]:
    """Measure, and yield the report."""
    ways: dict[str, Callable[[], Costs]] = {"ours": lambda: ours(_SECONDS)}
    if shutil.which("perf"):
        ways["perf"] = lambda: perfs(_SECONDS, scratch / "processed.data")
    with saturated(namespace, "tcp", setup=setup):
        measured = [{name: ways[name]() for name in order} for order in turns([*ways], rounds)]
    start = Spread.of(_start_ms() for _ in range(rounds))
    yield f"samples to named stacks, {_SECONDS} s at {HZ} Hz, median of {rounds} rounds\n{costs_table(measured)}\n"
    yield f"once at the start, ours reads the kernel's symbols: {start.shown()} ms\n"


def costs_table(rounds: Sequence[Mapping[str, Costs]]) -> str:
    """Lay out ms of CPU time for a thousand samples, and how many times ours that is in the same round."""
    rows = []
    for name in rounds[0]:
        samples = Spread.of(taken[name]["samples"] for taken in rounds)
        for part in [key for key in rounds[0][name] if key != "samples"]:
            cost = Spread.of(taken[name][part] for taken in rounds)
            times = Spread.of(taken[name][part] / taken["ours"]["ours"] for taken in rounds)
            rows.append([_TITLES[part], f"{samples.median:.0f}", cost.shown(".2f"), f"{times.median:.1f}"])
    return table(("", "samples", "ms CPU per 1000", "times ours"), rows)


def ours(seconds: float) -> Costs:
    """Sample and process as the command does."""
    spent_s = 0.0
    with CpuCollector(CpuOptions(hz=HZ)) as cpu:
        for _ in range(_DRAINS):
            time.sleep(seconds / _DRAINS)
            spent_s += _spent_s(cpu.drain)
        start_s = time.thread_time()
        snapshot = cpu.interval()
        spent_s += time.thread_time() - start_s
    samples = sum(stack.samples for stack in snapshot.stacks)
    if not samples:
        raise ToolError("the accounting took no stack")
    return {"ours": spent_s * 1e6 / samples, "samples": samples}


def perfs(seconds: float, path: Path) -> Costs:
    """Record with perf, then let it print and fold the text.

    Raises
    ------
    ToolError
        perf fails, or it took no sample.
    """
    options = ("-a", "-g", "-e", "cpu-clock:k", "-F", str(HZ), "-o", str(path))
    recorded = subprocess.run(
        ["perf", "record", *options, "--", "sleep", str(seconds)], capture_output=True, text=True, check=False
    )
    if recorded.returncode:
        raise ToolError(f"perf record failed: {recorded.stderr.strip()}")
    before_s = _children_s()
    printed = subprocess.run(["perf", "script", "-i", str(path)], capture_output=True, text=True, check=False).stdout
    script_s = _children_s() - before_s
    start_s = time.thread_time()
    samples = folded(printed.splitlines()).total()
    folding_s = time.thread_time() - start_s
    if not samples:
        raise ToolError("perf took no stack")
    return {"script": script_s * 1e6 / samples, "folding": folding_s * 1e6 / samples, "samples": samples}


def folded(lines: Iterable[str]) -> Counter[str]:
    """Count the stacks in the text of ``perf script``: name of the process and functions, the outermost first."""
    counts: Counter[str] = Counter()
    process, frames = "", list[str]()
    for line in (*lines, ""):
        if not line:
            if process:
                counts[";".join([process, *reversed(frames)])] += 1
            process, frames = "", []
        elif line[0] == "\t":
            frames.append(line.split(None, 2)[1].partition("+0x")[0])
        else:
            process = line.partition(" [")[0].rsplit(None, 1)[0]
    return counts


def _spent_s(act: Callable[[], object]) -> float:
    start_s = time.thread_time()
    act()
    return time.thread_time() - start_s


def _start_ms() -> float:
    return _spent_s(lambda: KernelSymbols().close()) * 1e3


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
