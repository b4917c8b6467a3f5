# SPDX-License-Identifier: Apache-2.0
"""``join``: how long two recordings take to be joined, what memory that needs, and how far off times are then.

The hosts are namespaces of this one: the truth is known. One of them is given another clock.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.clock_hosts import Hosts
from bench.measure import table
from bench.recorded_hosts import recorded, set_clock
from bench.tools import taken
from hopscope.lab import Workload
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import bounds_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.clock.samples import Ns

ROUNDS: Final = 1
# Each is five events or so where it is sent, and five where it arrives.
DATAGRAMS: Final = 1_000_000
_OFFSET_NS: Final = 123
_DRIFT: Final = 20e-6
_WANTED_S: Final = 20
_WANTED_NS: Final = 30
_EVENTS: Final = ("packets", "sockets", "cpu")


def run(rounds: int = ROUNDS, datagrams: int = DATAGRAMS) -> Iterator[str]:
    """Measure, and yield the report."""
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="hopscope-bench-") as name:
            folder = Path(name) / "recording"
            flood(folder, datagrams)
            shutil.copytree(folder / "b", Path(name) / "truth")
            started_ns = Metadata.read(folder / "a").started_ns
            set_clock(folder, "b", lambda times_ns: _ahead(times_ns, started_ns))  # noqa: B023 # called here
            rows = []
            for what, given in (("probes and packets", [folder]), ("packets alone", [folder / "a", folder / "b"])):
                out = Path(name) / what.replace(" ", "-")
                took_s, cpu_s, memory_bytes = join(given, out)
                cells = [what, f"{took_s:.1f}", f"{cpu_s:.1f}", f"{memory_bytes >> 20}"]
                rows.append([*cells, *_errors(out, Path(name) / "truth"), str(_WANTED_NS) if given == [folder] else ""])
            yield f"round {number + 1}: {_counts(folder)}\n{_table(rows)}\n\n"


def _ahead(times_ns: Ns, started_ns: int) -> Ns:
    drift_ns: Ns = np.rint((times_ns - started_ns) * _DRIFT).astype(np.int64)
    return times_ns + _OFFSET_NS + drift_ns


def flood(folder: Path, datagrams: int) -> None:
    """Record a flood of datagrams, and questions over TCP besides it, from one host to another into a folder."""
    with Hosts(2) as hosts, recorded(hosts, folder, "-P", "messages", "--buffer", "64"):
        address = hosts.address(1)
        here, there = hosts.namespaces
        with (
            Workload(there, "tcp-echo", "--bind", address) as echo,
            Workload(here, "tcp-rr", address, echo.port, "--rate", 500, "--limit", 300),
            Workload(there, "udp-sink", "--bind", address, "--limit", 300) as sink,
            Workload(here, "udp-send", address, sink.port, "--count", datagrams, "--limit", 300) as sending,
        ):
            sending.result()


def join(folders: Sequence[Path], out: Path) -> tuple[float, float, int]:
    """Join recordings; return what it took: s, s of CPUs, bytes of memory."""
    return taken((sys.executable, "-m", "hopscope", "join", *map(str, folders), "-o", str(out)))


def _errors(out: Path, truth: Path) -> list[str]:
    with Trace(out) as trace, Trace(truth) as own:
        found, true = _times(trace, "cpu >= 1024"), _times(own, "cpu >= 0")
        error, bound = np.abs(found - true), bounds_ns(trace, 1, found)
        return [f"{np.median(error):.0f}", f"{error.max()}", f"{np.median(bound):.0f}", f"{(error > bound).sum()}"]


def _times(trace: Trace, where: str) -> Ns:
    parts = [trace.columns(f"SELECT time_ns FROM {table} WHERE {where}")["time_ns"] for table in _EVENTS]
    return np.concatenate([np.sort(np.asarray(part, np.int64)) for part in parts])


def _counts(folder: Path) -> str:
    counts = []
    for name in "ab":
        with Trace(folder / name) as trace:
            events = sum(trace.rows(f"SELECT count(*) FROM {table}")[0][0] for table in _EVENTS)
            lost = trace.rows("SELECT coalesce(sum(lost), 0) FROM losses")[0][0]
        counts.append(f"{events:,} events of {name} ({lost:,} lost)")
    return ", ".join(counts) + f"; wanted: {_WANTED_S} s for 5 million each"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = (
        "by",
        "s",
        "CPU s",
        "MiB",
        "error, ns: median",
        "worst",
        "bound: median",
        "error over bound",
        "wanted, worst",
    )
    return table(head, rows)
