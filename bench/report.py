# SPDX-License-Identifier: Apache-2.0
"""``report``: how long reports of a recording take, beside those of trace-cmd and of perf.

perf records what its script netdev-times wants; the script itself (of perf 6.1) stops at the first ``consume_skb`` of a
Linux that gives it an argument more, so that what is timed is perf's plain listing.

A load over lo is recorded by each tool in turn; then each reads what it wrote, several times, the files being in the
page cache. Times are of a process from its start to its end. The tools do not record the same number of events in the
same time, so what is compared is events a second.

Then two hosts are recorded and joined: what reports of both take for an event, beside those of each host alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench import join, tools, traffic
from bench.measure import Spread, table, turns
from hopscope.lab import Namespace
from hopscope.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 5
_RECORD_S: Final = 8.0
_PROFILES: Final = ("messages", "cpu")
_OURS: Final = ("events", "hops", "messages", "netdev-times")
_THEIRS: Final = ("net", "skb", "napi", "irq", "sched")
_EVENTS: Final = "SELECT (SELECT count(*) FROM packets) + (SELECT count(*) FROM sockets) + (SELECT count(*) FROM cpu)"
_WANTED: Final = {"events": "0.5", "hops": "0.3", "messages": "0.8"}
_REPORT: Final = (sys.executable, "-m", "hopscope", "report")
_OF_HOSTS: Final = ("hops", "messages", "requests")
_BETWEEN_HOSTS: Final = "network"
_WANTED_RATIO: Final = 1.3

Command = tuple[str, ...]


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    for load in traffic.LOADS:
        with TemporaryDirectory(prefix="hopscope-bench-") as folder, Namespace() as namespace:
            recordings = recorded(namespace, Path(folder), load, _RECORD_S)
            commands = reports(Path(folder))
            measured = [{name: seconds(commands[name]) for name in order} for order in turns([*commands], rounds)]
        yield f"{load} over lo, {_RECORD_S} s recorded by each tool; median of {rounds}\n"
        rows = []
        for name in commands:
            events = recordings[name.split()[0]]
            taken = Spread.of(times[name] for times in measured)
            per_s = events / taken.median / 1e6
            wanted = _WANTED.get(name.partition(" ")[2], "")
            rows.append([name, f"{events:,}", taken.shown(".2f"), f"{per_s:.2f}", f"{1 / per_s:.2f}", wanted])
        yield table(("", "events", "s", "M events/s", "s a million", "wanted"), rows) + "\n\n"
    yield from _joined(rounds)


def _joined(rounds: int) -> Iterator[str]:
    """Measure reports of two hosts' recordings, joined, and of each of them; yield the report."""
    with TemporaryDirectory(prefix="hopscope-bench-") as name:
        folder, both = Path(name) / "recording", Path(name) / "joined"
        join.flood(folder, join.DATAGRAMS)
        join.join([folder], both)
        traces = {"a": folder / "a", "b": folder / "b", "both": both}
        events = {of: events_of(trace) for of, trace in traces.items()}
        runs = {(report, of): (*_REPORT, report, str(traces[of])) for report in _OF_HOSTS for of in traces}
        runs[_BETWEEN_HOSTS, "both"] = (*_REPORT, _BETWEEN_HOSTS, str(both))
        measured = [{key: tools.taken(runs[key]) for key in order} for order in turns([*runs], rounds)]
    yield f"two hosts: {', '.join(f'{count:,} events of {of}' for of, count in events.items())}; median of {rounds}\n"
    rows = []
    for report, of in runs:
        wall_s, cpu_s = (Spread.of(times[report, of][which] for times in measured) for which in range(2))
        each = cpu_s.median / events[of]
        ratio = ""
        if of == "both" and report in _OF_HOSTS:
            alone_s = sum(Spread.of(times[report, one][1] for times in measured).median for one in "ab")
            ratio = f"{each / (alone_s / (events['a'] + events['b'])):.2f}"
        cells = [f"{report} of {of}", wall_s.shown(".2f"), cpu_s.shown(".2f"), f"{each * 1e6:.2f}", ratio]
        rows.append([*cells, f"{_WANTED_RATIO}" if ratio else ""])
    yield table(("", "s", "CPU s", "CPU s a million", "of one host's", "wanted"), rows) + "\n\n"


def events_of(folder: Path) -> int:
    """Return how many events a recording has."""
    with Trace(folder) as trace:
        return int(trace.rows(_EVENTS)[0][0])


def recorded(namespace: Namespace, folder: Path, load: str, duration_s: float) -> dict[str, int]:
    """Record a load by each tool in turn; return the events that each has.

    Raises
    ------
    ToolError
        A tool saw nothing.
    """
    with traffic.saturated(namespace, load):
        with tools.running(tools.record(folder / "trace", _PROFILES)):
            time.sleep(duration_s)
        if shutil.which("trace-cmd"):
            with tools.running(tools.trace_cmd(folder / "trace.dat", _THEIRS)):
                time.sleep(duration_s)
        if shutil.which("perf"):
            with tools.running(tools.perf_netdev_times(folder / "perf.data")):
                time.sleep(duration_s)
    found = {"hopscope": events_of(folder / "trace")}
    for name, command in _countable(folder).items():
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            found[name.split()[0]] = sum(1 for line in process.stdout if line.strip())
    return found


def reports(folder: Path) -> dict[str, Command]:
    """Return the commands that are compared."""
    commands: dict[str, Command] = {f"hopscope {name}": (*_REPORT, name, str(folder / "trace")) for name in _OURS}
    return commands | _countable(folder)


def _countable(folder: Path) -> dict[str, Command]:
    """Return what prints a line for each event of the other tools' recordings."""
    found: dict[str, Command] = {}
    if (folder / "trace.dat").exists():
        found["trace-cmd report"] = ("trace-cmd", "report", "-i", str(folder / "trace.dat"))
    if (folder / "perf.data").exists():
        found["perf script"] = ("perf", "script", "-i", str(folder / "perf.data"))
    return found


def seconds(command: Command) -> float:
    """Return how long a command takes, whose output goes nowhere.

    Raises
    ------
    ToolError
        It failed.
    """
    begun_s = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    taken_s = time.perf_counter() - begun_s
    if done.returncode:
        raise tools.ToolError(f"{' '.join(command)} failed: {done.stderr}")
    return taken_s
