# SPDX-License-Identifier: Apache-2.0
"""Recordings of several hosts that are namespaces of this one: the true difference of their clocks is 0.

Where another is wanted, the times of one host's trace are written anew.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.tools import ToolError
from hopscope.clock.pairs import Pairs
from hopscope.store.hosts import BACK, PROBES, THERE, Hosts, HostsWriter
from hopscope.store.probes import probe_columns, read_probes
from hopscope.store.schema import TABLES
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench import clock_hosts

    Ahead = Callable[[np.ndarray], np.ndarray]
    Columns = dict[str, np.ndarray]
    Values = Callable[[str, Columns], Columns]

TIMES: Final = {"time_ns", "from_ns", "until_ns"}
_ENDS_S: Final = 60
_TRIES: Final = 2000


@contextmanager
def recorded(hosts: clock_hosts.Hosts, folder: Path, *options: object) -> Iterator[Path]:
    """Record each namespace as a host of its own while the body runs, and let them probe each other."""
    names = [chr(ord("a") + number) for number in range(len(hosts.namespaces))]
    with HostsWriter(folder, [(name, "local") for name in names]) as writer:
        recorders = [
            _record("-o", writer.part(name).path, "--netns", namespace.pid, "--counters", 0, *options)
            for name, namespace in zip(names, hosts.namespaces, strict=True)
        ]
        for name in names:
            _wait_for(folder / name / "hopscope.json")
        done = threading.Event()
        with Pairs(hosts.members) as pairs:
            numbers = [writer.pair(names[first], names[second]) for first, second in pairs.ends]
            pairs.start()

            def probe() -> None:
                while not done.is_set():
                    if window := pairs.take(0.1):
                        for columns in probe_columns(numbers[window.pair], window.samples):
                            writer.append(columns)

            thread = threading.Thread(target=probe)
            thread.start()
            try:
                yield folder
            finally:
                done.set()
                thread.join()
                for recorder in recorders:
                    recorder.send_signal(signal.SIGINT)
                for recorder in recorders:
                    _, said = recorder.communicate(timeout=_ENDS_S)
                    if recorder.returncode:
                        raise ToolError(said)


def _record(*options: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "hopscope", "record", *map(str, options)]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _wait_for(path: Path) -> None:
    for _ in range(_TRIES):
        if path.exists():
            return
        threading.Event().wait(0.01)
    raise ToolError(f"{path} was not written")


def set_clock(folder: Path, name: str, ahead: Ahead, values: Values = lambda _, columns: columns) -> None:
    """Write a recording anew as if the clock of a host had shown what `ahead` makes of it, with other `values`."""
    hosts = Hosts.read(folder)
    place = [host.name for host in hosts.hosts].index(name)
    for part in hosts.hosts[place].parts:
        _rewrite(folder / part, ahead, values)
    probes = dict(read_probes(folder))
    for number, pair in enumerate(hosts.pairs):
        for way in (THERE, BACK):
            ours = (probes["pair"] == number) & (probes["way"] == way)
            for end, column in ((way, "sent_ns"), (1 - way, "received_ns")):
                if pair.hosts[end] == place:
                    probes[column][ours] = ahead(probes[column][ours])
    shutil.rmtree(folder / PROBES.name, ignore_errors=True)
    with HostsWriter(folder / "fresh", []) as writer:
        writer.append(probes)
    (folder / "fresh" / PROBES.name).rename(folder / PROBES.name)
    shutil.rmtree(folder / "fresh")


def _rewrite(folder: Path, ahead: Ahead, values: Values) -> None:
    """Write a trace anew with other times and values."""
    old = folder.with_name(f"{folder.name}-old")
    folder.rename(old)
    with Trace(old) as trace:
        metadata = trace.metadata
        started_ns, ended_ns = ahead(np.array([metadata.started_ns, metadata.ended_ns])).tolist()
        metadata.started_ns = started_ns
        with TraceWriter(folder, metadata) as writer:
            for table in (*TABLES, *metadata.tables):
                for columns in trace.by_file(table):
                    moved = {name: ahead(each) if name in TIMES else each for name, each in columns.items()}
                    writer.append(table.name, values(table.name, moved))
            writer.close(ended_ns=ended_ns)
    shutil.rmtree(old)
