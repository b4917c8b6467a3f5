# SPDX-License-Identifier: Apache-2.0
"""The load: the lab's workloads, each end on its own CPU, by default over lo of a network namespace of our own."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError
from hopscope.lab import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace
    from hopscope.lab.pace import Summary

LOADS: Final = {"tcp": "saturating TCP stream", "udp": "flood of 64-byte UDP datagrams"}
# However a benchmark ends, its traffic does so on its own.
_LIMIT_S: Final = 300
_UDP_BUFFER_BYTES: Final = 8 << 20
# For sockets and their buffers to grow.
_SETTLE_S: Final = 0.3
_START_S: Final = 20
_LOOK_EVERY_S: Final = 0.01
_COUNTERS: Final = {"tcp": ("netstat", "IpExt:", "InOctets"), "udp": ("snmp", "Udp:", "InDatagrams")}


@dataclass(frozen=True, slots=True)
class TrafficSetup:
    """Endpoints and options of the traffic of one measurement.

    Attributes
    ----------
    port
        Where the server listens; 0 takes a free one.
    sender
        Further options of the sending or requesting program, as in `hopscope.lab.traffic`.
    host, server
        The server's address, and its network namespace if it is not the sender's.
    """

    port: int = 0
    sender: tuple[str | float, ...] = ()
    host: str = "127.0.0.1"
    server: Namespace | None = None


_ANY: Final = TrafficSetup()


@contextmanager
def saturated(
    namespace: Namespace, load: str, *, cpus: int = 2, setup: TrafficSetup = _ANY
) -> Iterator[tuple[int, int]]:
    """Keep a load of :data:`LOADS` running, its ends on 1 or 2 CPUs; yield the pids of both once it flows.

    Raises
    ------
    HopscopeError
        It does not flow.
    """
    extra = ("--rcvbuf", _UDP_BUFFER_BYTES) if load == "udp" else ()
    with (
        _server(namespace, f"{load}-sink", *extra, cpu=cpus - 1, setup=setup) as sink,
        Workload(namespace, f"{load}-send", setup.host, sink.port, "--limit", _LIMIT_S, *setup.sender) as sender,
    ):
        pin(sender.pid, 0)
        _wait_flowing(setup.server or namespace, load)
        yield sender.pid, sink.pid


def _wait_flowing(namespace: Namespace, load: str) -> None:
    before = received(namespace.pid, load)
    until_s = time.monotonic() + _START_S
    while received(namespace.pid, load) == before:
        if time.monotonic() > until_s:
            raise HopscopeError(f"no {LOADS[load]} within {_START_S} s")
        time.sleep(_LOOK_EVERY_S)


def pin(pid: int, index: int) -> None:
    """Let a process run only on the CPU of this index among those that we may use, modulo their number."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {cpus[index % len(cpus)]})


@dataclass(frozen=True, slots=True)
class Stream:
    """What a TCP stream achieved: bytes a second, as the reader saw it."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Flood:
    """What a flood of datagrams achieved: datagrams a second at either end."""

    sent_per_s: float
    received_per_s: float


def stream(namespace: Namespace, seconds: float, *, setup: TrafficSetup = _ANY) -> Stream:
    """Send on one TCP connection as fast as it goes, from one CPU to another."""
    with _server(namespace, "tcp-sink", setup=setup) as sink:
        _client(namespace, "tcp-send", sink, seconds, setup)
        read = sink.result()
    return Stream(read.len_bytes / read.duration_s)


def flood(namespace: Namespace, seconds: float, *, setup: TrafficSetup = _ANY) -> Flood:
    """Send datagrams, of 64 bytes if nothing else is said, as fast as it goes, from one CPU to another."""
    with _server(namespace, "udp-sink", "--rcvbuf", _UDP_BUFFER_BYTES, setup=setup) as sink:
        sent = _client(namespace, "udp-send", sink, seconds, setup)
        read = sink.stop()
    return Flood(sent.messages / sent.duration_s, read.messages / read.duration_s)


def per_cpu_second(namespace: Namespace, load: str, seconds: float, *, setup: TrafficSetup = _ANY) -> float:
    """Return the bytes (tcp) or datagrams (udp) that are sent and read in a second of CPU time of both ends.

    Both are on one CPU. On a machine with nothing else to do that is their rate; on a busy one it is what their rate
    would be.
    """
    pid = (setup.server or namespace).pid
    with saturated(namespace, load, cpus=1, setup=setup) as pids:
        time.sleep(_SETTLE_S)
        before, before_ns = received(pid, load), sum(map(cpu_ns, pids))
        time.sleep(seconds)
        after, after_ns = received(pid, load), sum(map(cpu_ns, pids))
    return (after - before) / (after_ns - before_ns) * 1e9


def received(pid: int, load: str) -> int:
    """Return the bytes that a process's network namespace took in so far (tcp), or the datagrams read in it (udp)."""
    file, line, column = _COUNTERS[load]
    text = Path(f"/proc/{pid}/net/{file}").read_text(encoding="utf-8")
    # Two lines with the same name: of the columns' names, and of their values.
    names, values = (found.split() for found in text.splitlines() if found.startswith(line))
    return int(values[names.index(column)])


def cpu_ns(pid: int) -> int:
    """Return the time that all threads of a process were on a CPU, by the scheduler's account."""
    paths = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text(encoding="utf-8").split()[0]) for path in paths)


def ask(namespace: Namespace, seconds: float, *, cpus: int, setup: TrafficSetup = _ANY) -> Summary:
    """Send 64-byte requests on one connection, each after the reply to the last, between processes on 1 or 2 CPUs."""
    with _server(namespace, "tcp-echo", cpu=cpus - 1, setup=setup) as echo:
        return _client(namespace, "tcp-rr", echo, seconds, setup)


@contextmanager
def beside(namespace: Namespace, setup: TrafficSetup) -> Iterator[None]:
    """Keep a TCP stream with the sender's options running during the block, its ends wherever there is room."""
    with (
        Workload(namespace, "tcp-sink", "--port", setup.port, "--limit", _LIMIT_S) as sink,
        Workload(namespace, "tcp-send", "127.0.0.1", sink.port, "--limit", _LIMIT_S, *setup.sender),
    ):
        yield


def _server(namespace: Namespace, *arguments: str | float, setup: TrafficSetup, cpu: int = 1) -> Workload:
    where = ("--bind", setup.host, "--port", setup.port)
    server = Workload(setup.server or namespace, *arguments, *where, "--limit", _LIMIT_S)
    pin(server.pid, cpu)
    return server


def _client(namespace: Namespace, name: str, server: Workload, seconds: float, setup: TrafficSetup) -> Summary:
    with Workload(namespace, name, setup.host, server.port, "--duration", seconds, *setup.sender) as client:
        pin(client.pid, 0)
        return client.result()
