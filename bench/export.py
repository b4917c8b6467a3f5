# SPDX-License-Identifier: Apache-2.0
"""``export``: how many events a second are written in each format, and how many packets for Wireshark.

A load over lo is recorded once; each format is written several times, from a recording in the page cache, to memory if
/dev/shm is there. Times are of a process from its start to its end, as users have it, and of its CPUs besides: on a
busy machine, these say what it costs. Packets are those of a flood of datagrams; tshark shows the first of them with
their fields.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench import tools, traffic
from bench.measure import Spread, table, turns
from bench.report import events_of
from hopscope.lab import Namespace
from hopscope.store.trace import Trace
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 5
_RECORD_S: Final = 8.0
_LOAD: Final = "tcp"
_PROFILES: Final = ("messages", "cpu")
_FORMATS: Final = ("ctf", "perfetto", "chrome", "speedscope", "csv", "jsonl", "parquet")
_PACKETS_LOAD: Final = "udp"
# Packets that tshark shows, and how long it may take for them; packets a second that are to be written.
_SHOWN, _SHOWN_S, _PACKETS_PER_S = 100_000, 12.0, 100_000
# Events a second that are wanted.
_WANTED: Final = {"ctf": 1_000_000, "perfetto": 300_000}
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 # a folder with a name of its own is made in it


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="hopscope-bench-", dir=place) as name, Namespace() as namespace:
        folder = Path(name)
        with traffic.saturated(namespace, _LOAD), tools.running(tools.record(folder / "trace", _PROFILES)):
            time.sleep(_RECORD_S)
        events = events_of(folder / "trace")
        measured = [{form: _taken(folder, form) for form in order} for order in turns([*_FORMATS], rounds)]
    yield f"{events:,} events of {traffic.LOADS[_LOAD]} over lo; median of {rounds}\n"
    rows = []
    for form in _FORMATS:
        wall_s, cpu_s = (Spread.of(times[form][which] for times in measured) for which in range(2))
        per_s, wanted = events / wall_s.median, _WANTED.get(form)
        cells = [form, wall_s.shown(".2f"), cpu_s.shown(".2f"), f"{per_s:,.0f}", f"{events / cpu_s.median:,.0f}"]
        rows.append([*cells, f"{per_s / wanted:.2f}" if wanted else "", f"{wanted:,}" if wanted else ""])
    heading = ("", "s", "CPU s", "events/s", "events/CPU s", "of wanted", "wanted")
    yield table(heading, rows) + "\n\n"
    yield from _packets(rounds, place)


def _packets(rounds: int, place: Path | None) -> Iterator[str]:
    with TemporaryDirectory(prefix="hopscope-bench-", dir=place) as name, Namespace() as namespace:
        folder = Path(name)
        recording, file = folder / "trace", folder / "packets.pcapng"
        with traffic.saturated(namespace, _PACKETS_LOAD), tools.running(tools.record(recording, _PROFILES[:1])):
            time.sleep(_RECORD_S)
        events = events_of(recording)
        ours = (sys.executable, "-m", "hopscope")
        subprocess.run((*ours, "export", "pcapng", str(recording), "-o", str(file), "--limit", str(_SHOWN)), check=True)
        shown = (*ours, "wireshark", "--text", str(file), "--", "-w", os.devnull, "-Y", "hopscope.total")
        written, read = [], []
        for _ in range(rounds):
            written.append(_taken(folder, "pcapng"))
            read.append(tools.taken(shown))
        count = _count(recording)
    yield f"{count:,} packets in {events:,} events of {traffic.LOADS[_PACKETS_LOAD]} over lo; median of {rounds}\n"
    rows = []
    for what, times, packets, wanted_s in (
        ("pcapng", written, count, count / _PACKETS_PER_S),
        ("tshark", read, min(count, _SHOWN), _SHOWN_S),
    ):
        wall_s, cpu_s = (Spread.of(each[which] for each in times) for which in range(2))
        cells = [what, f"{packets:,}", wall_s.shown(".2f"), cpu_s.shown(".2f"), f"{packets / cpu_s.median:,.0f}"]
        rows.append([*cells, f"{wanted_s:.1f}"])
    yield table(("", "packets", "s", "CPU s", "packets/CPU s", "at most s"), rows) + "\n\n"


def _count(recording: Path) -> int:
    """Return how many packets a recording has whose addresses are known: those that are written."""
    with Trace(recording) as trace:
        build(trace, "skb_lifetimes")
        ((count,),) = trace.rows("SELECT count(DISTINCT packet) FROM skb_lifetimes WHERE flow <> 0")
        return int(count)


def _taken(folder: Path, form: str) -> tuple[float, float, int]:
    out = folder / "out"
    words = ("export", form, str(folder / "trace"), "-o", str(out), "--limit", "0")
    found = tools.taken((sys.executable, "-m", "hopscope", *words))
    if out.is_dir():
        shutil.rmtree(out)
    else:
        out.unlink()
    return found
