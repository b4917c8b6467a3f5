# SPDX-License-Identifier: Apache-2.0
"""``record``: what a TCP stream loses while it is recorded, by us and by trace-cmd, and what the writer takes.

The stream goes over lo. ``packets`` are the events that trace-cmd has in its subsystems net, skb and napi; with
``cpu``, interrupts, softirqs and the scheduler come to both. The conditions take turns; a change is that against
nothing attached in the same round. ``again`` is a second run of nothing: the noise. ``empty`` are programs that do
nothing on the hooks of ``packets``: what the kernel's way to call a program costs alone. ``unread`` are the programs of
``packets``, with rings that have room for all that they make, and nobody who reads it.

What reading and writing take is the CPU time of the whole process under load, less that of the same process while
nothing happens; the trace's size is that of all its tables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import tools, traffic
from bench.changes import OFF, Metric, changes_table
from bench.floor import Floor
from bench.measure import Spread, table, turns
from hopscope.lab import Namespace
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.changes import Figures

ROUNDS: Final = 8
_LOAD_S: Final = 1.0
_SUSTAIN_S: Final = 5
_OURS: Final = {"packets": ("packets",), "packets + cpu": ("packets", "cpu")}
_THEIRS: Final = {
    "trace-cmd": ("net", "skb", "napi"),
    "trace-cmd + irq, sched": ("net", "skb", "napi", "irq", "sched"),
}
CONDITIONS: Final = (OFF, "again", "empty", "unread", *_OURS, *_THEIRS)
# Of each CPU, and nobody reads: two million records, where a measurement has a third of that.
_UNREAD_BYTES: Final = 1 << 27
_WANTED: Final = {"packets": "-5", "packets + cpu": "-10"}
METRICS: Final = {
    "tcp_cpu": Metric("TCP, Gbit per CPU s", 1e9 / 8, ".2f", _WANTED),
    "tcp": Metric("TCP, Gbit/s", 1e9 / 8, ".2f", _WANTED),
}
# What `record` says at its end.
_END: Final = re.compile(r"^([\d,]+) events in ([\d.]+) s, (none|[\d,]+) lost;", re.MULTILINE)


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    names = [name for name in CONDITIONS if name not in _THEIRS or shutil.which("trace-cmd")]
    if len(names) < len(CONDITIONS):
        yield "there is no trace-cmd here to compare with\n"
    with TemporaryDirectory(prefix="hopscope-bench-") as folder, Namespace() as namespace:
        scratch = Path(folder)
        floor = Floor(scratch, "record", programs(_OURS["packets"]))
        for cpus, title in ((1, "both ends on one CPU"), (2, "an end on each of two CPUs")):
            measured = [
                {name: figures(namespace, condition(name, floor, scratch), cpus) for name in order}
                for order in turns(names, rounds)
            ]
            yield f"{title}; median of {rounds} rounds of {_LOAD_S} s, change in % against off\n"
            yield changes_table(measured, METRICS) + "\n\n"
        yield from _writer(namespace, scratch, rounds)


def programs(profiles: tuple[str, ...]) -> dict[str, str]:
    """Return the programs that ``record`` attaches on this kernel for some profiles, and the kind of each."""
    with Recorder(RecordOptions(profiles=profiles)) as recorder:
        return recorder.programs()


def condition(name: str, floor: Floor, scratch: Path) -> AbstractContextManager[object]:
    """Return what goes on during a measurement."""
    if name in _OURS:
        folder = scratch / "trace"
        shutil.rmtree(folder, ignore_errors=True)
        return tools.running(tools.record(folder, _OURS[name]))
    if name in _THEIRS:
        return tools.running(tools.trace_cmd(scratch / "trace.dat", _THEIRS[name]))
    if name == "unread":
        return _unread()
    return floor.attached() if name == "empty" else nullcontext()


@contextmanager
def _unread() -> Iterator[None]:
    """Record, and read nothing before the end.

    Raises
    ------
    ToolError
        The rings were too small.
    """
    with Recorder(RecordOptions(profiles=_OURS["packets"], ring_bytes=_UNREAD_BYTES)) as recorder:
        yield
        recorder.take()
        if recorder.lost:
            raise tools.ToolError(f"{recorder.lost} records found no room in a ring of {_UNREAD_BYTES} bytes")


def figures(namespace: Namespace, during: AbstractContextManager[object], cpus: int) -> Figures:
    """Measure under one condition.

    Raises
    ------
    ToolError
        A tool saw nothing of what it was to follow.
    """
    with during:
        if cpus == 1:
            return {"tcp_cpu": traffic.per_cpu_second(namespace, "tcp", _LOAD_S)}
        return {"tcp": traffic.stream(namespace, _LOAD_S).bytes_per_s}


class Recorded(NamedTuple):
    """What a recording came to.

    Attributes
    ----------
    events, lost
        As it said at its end.
    per_s
        Events a second.
    cpu_s
        CPU time of the process, from its start to its end.
    size_bytes
        Of the trace.
    """

    events: int
    lost: int
    per_s: float
    cpu_s: float
    size_bytes: int


def recorded(folder: Path, profile: str, seconds: float) -> Recorded:
    """Record for a while.

    Raises
    ------
    ToolError
        It failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = (sys.executable, "-m", "hopscope", "record", "-P", profile, "-d", str(seconds), "-o", str(folder))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None  # noqa: S101 - for the type checker
        said = process.stderr.read()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    found = _END.search(said)
    if not found:
        raise tools.ToolError(f"hopscope record did not say what it recorded: {said}")
    events, lost = (int(text.replace(",", "").replace("none", "0")) for text in found.group(1, 3))
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    return Recorded(events, lost, events / float(found[2]), usage.ru_utime + usage.ru_stime, size)


def _writer(namespace: Namespace, scratch: Path, rounds: int) -> Iterator[str]:
    """Yield what reading and writing take, by profile and load."""
    rows = []
    for profile in ("packets", "messages", "all"):
        for load in traffic.LOADS:
            runs = []
            for _ in range(max(rounds // 2, 1)):
                idle = recorded(scratch / "trace", profile, _SUSTAIN_S)
                with traffic.saturated(namespace, load):
                    runs.append((idle, recorded(scratch / "trace", profile, _SUSTAIN_S)))
            cpu = Spread.of((run.cpu_s - idle.cpu_s) / run.events * 1e9 for idle, run in runs)
            rows.append(
                [
                    profile,
                    load,
                    f"{Spread.of(run.per_s / 1e6 for _, run in runs).median:.2f}",
                    f"{sum(run.lost for _, run in runs)}",
                    cpu.shown(".0f"),
                    f"{Spread.of(run.size_bytes / run.events for _, run in runs).median:.1f}",
                ]
            )
    yield f"the process that reads and writes, {_SUSTAIN_S} s each\n"
    yield "wanted: 1.5 M/s with none lost, 350 ns (35 % of a core at 1 M/s), 9 bytes\n"
    head = ("profile", "load", "M events/s", "lost", "CPU, ns an event", "bytes per event")
    yield table(head, rows, names=2) + "\n"
