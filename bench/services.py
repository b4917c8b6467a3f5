# SPDX-License-Identifier: Apache-2.0
"""``services``: ten small services, as containers have them, and what networking takes of each one's CPU time.

Each is in a network namespace and a cgroup of its own, on a bridge; a client asks all of them 100 times a second each,
at addresses that a rule translates (DNAT, so that connections are tracked). `cpu -g cgroup` accounts for the calls of
each that send and receive: which share these are of the process's CPU time by the scheduler's account. Beside it stands
the share of perf's samples of the process that were in these calls: perf has no samples of times in which a virtual
machine is not run, so that shares are compared. Then, what the answers lose while `cpu` runs, in turns with nothing.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import tools, traffic
from bench.changes import OFF, Metric, changes_table
from bench.measure import table, turns
from bench.processing import folded
from bench.tools import ToolError
from hopscope.lab import Namespace, Workload
from hopscope.lab.netlink import add_addresses, add_bridge, add_neighbours, add_veth, wait_up
from hopscope.probes.attach import cgroup_root
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench.changes import Figures

ROUNDS: Final = 4
SERVICES: Final = 10
_RATE: Final = 100
_LOAD_S: Final = 3.0
_PERF_HZ: Final = 999
_MTU: Final = 1500
_SIZES: Final = ("--size", 200, "--reply-size", 4000)
_CALLS: Final = ("send", "receive")
# What perf finds on the stack of a thread in one of these calls.
_ENTRIES: Final = frozenset(
    {"__sys_sendto", "__sys_sendmsg", "__sys_recvfrom", "__sys_recvmsg", "sock_write_iter", "sock_read_iter"}
)
_SOFTIRQS: Final = frozenset({"handle_softirqs", "__do_softirq"})
_CONDITIONS: Final = (OFF, "again", "cpu", "cpu, 1 kHz")
_METRICS: Final = {
    "p50": Metric("answers' p50, us", 1e3, ".1f"),
    "p99": Metric("answers' p99, us", 1e3, ".1f"),
    "cpu": Metric("CPU time of services, ms/s", 1e6, ".1f"),
}


class Taken(NamedTuple):
    """Of one service: time in its calls by ours, and CPU time of the process, ns; samples in these calls, and all."""

    calls_ns: int
    all_ns: int
    calls: int
    samples: int


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with _network() as network, TemporaryDirectory(prefix="hopscope-bench-") as scratch:
        if shutil.which("perf"):
            measured = [_accounted(network, Path(scratch) / "perf.data") for _ in range(rounds)]
            yield f"time in calls that send and receive, {SERVICES} services, {rounds} rounds of {_LOAD_S} s\n"
            yield accounts_table(measured) + "\n\n"
        else:
            yield "there is no perf here to compare with\n"
        losses = [{name: _answers(network, name) for name in order} for order in turns(_CONDITIONS, rounds)]
        yield f"{_RATE} requests a second to each; median of {rounds} rounds of {_LOAD_S} s, change in % against off\n"
        yield changes_table(losses, _METRICS) + "\n\n"


def accounts_table(rounds: Sequence[Mapping[str, Taken]]) -> str:
    """Lay out the share of each service by ours and by perf, with the error of sampling (one standard deviation)."""
    rows = []
    for name in [*rounds[0], "all"]:
        taken = _sum(each for found in rounds for each in ([*found.values()] if name == "all" else [found[name]]))
        share, perfs = taken.calls_ns / taken.all_ns, taken.calls / max(taken.samples, 1)
        error = math.sqrt(perfs * (1 - perfs) / max(taken.samples, 1))
        times = (f"{each / 1e6:.1f}" for each in (taken.all_ns, taken.calls_ns))
        rows.append([name, *times, f"{share:.1%}", f"{taken.samples:,}", f"{perfs:.1%}", f"±{error:.1%}"])
    head = ("service", "CPU time, ms", "in calls, ms", "share", "perf's samples", "in calls", "")
    return table(head, rows)


def _sum(taken: Iterable[Taken]) -> Taken:
    return Taken(*map(sum, zip(*taken, strict=True)))


class _Service(NamedTuple):
    """Where it is, and where it is asked."""

    host: Namespace
    group: Path
    address: str
    asked: str


class _Network(NamedTuple):
    client: Namespace
    services: dict[str, _Service]


@contextlib.contextmanager
def _network() -> Iterator[_Network]:
    """Make namespaces, bridge and cgroups."""
    with contextlib.ExitStack() as stack:
        client, bridge, *hosts = (stack.enter_context(Namespace()) for _ in range(2 + SERVICES))
        client.call(add_veth, "client0", "client-port", bridge.pid, _MTU)
        client_mac = client.call(add_addresses, "client0", ("10.79.0.2",))
        port_mac = bridge.call(add_addresses, "client-port", ("10.79.0.1",))
        client.call(add_neighbours, "client0", port_mac, ("10.79.0.1",))
        bridge.call(add_neighbours, "client-port", client_mac, ("10.79.0.2",))
        client.run(["ip", "route", "add", "default", "via", "10.79.0.1"], check=True)
        for number, host in enumerate(hosts, 1):
            host.call(add_veth, "eth0", f"port{number}", bridge.pid, _MTU)
        bridge.call(add_bridge, "bridge0", [f"port{number}" for number in range(1, SERVICES + 1)])
        bridge_mac = bridge.call(add_addresses, "bridge0", ("10.78.0.254",))
        bridge.sysctl("net.ipv4.ip_forward", 1)
        bridge.run(["nft", "-f", "-"], input=_translation().encode(), check=True)
        root = stack.enter_context(_folder(cgroup_root() / f"hopscope-bench-{bridge.pid}"))
        services = {}
        for number, host in enumerate(hosts, 1):
            name, address = f"service{number}", f"10.78.0.{number}"
            mac = host.call(add_addresses, "eth0", (address,))
            bridge.call(add_neighbours, "bridge0", mac, (address,))
            host.call(add_neighbours, "eth0", bridge_mac, ("10.78.0.254",))
            host.run(["ip", "route", "add", "default", "via", "10.78.0.254"], check=True)
            bridge.call(wait_up, f"port{number}")
            services[name] = _Service(host, stack.enter_context(_folder(root / name)), address, f"10.96.0.{number}")
        yield _Network(client, services)


def _translation() -> str:
    addresses = ", ".join(f"10.96.0.{number} : 10.78.0.{number}" for number in range(1, SERVICES + 1))
    rule = f"ip daddr 10.96.0.0/24 dnat to ip daddr map {{ {addresses} }}"
    return f"table ip lab {{ chain lab {{ type nat hook prerouting priority -100; {rule}; }}; }}\n"


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    try:
        yield folder
    finally:
        folder.rmdir()


@contextlib.contextmanager
def _asked(network: _Network, seconds: float) -> Iterator[tuple[dict[str, Workload], list[Workload]]]:
    """Run all services, which are asked for so long; yield them, and who asks."""
    with contextlib.ExitStack() as stack:
        running, asking = {}, []
        for name, each in network.services.items():
            own = ("--bind", each.address, "--port", 80, "--comm", name, "--cgroup", each.group)
            running[name] = stack.enter_context(Workload(each.host, "tcp-echo", *own, *_SIZES))
        for each in network.services.values():
            words = ("tcp-rr", each.asked, 80, *_SIZES, "--rate", _RATE, "--duration", seconds)
            asking.append(stack.enter_context(Workload(network.client, *words)))
        yield running, asking


def _accounted(network: _Network, path: Path) -> dict[str, Taken]:
    """Have ours and perf look at the same time."""
    with _asked(network, 3 * _LOAD_S) as (running, _), CpuCollector(CpuOptions(group_by="cgroup")) as cpu:
        time.sleep(_LOAD_S / 2)  # until all are asked
        cpu.interval()
        before = {name: traffic.cpu_ns(each.pid) for name, each in running.items()}
        options = ("-a", "-g", "-e", "cpu-clock", "-F", str(_PERF_HZ), "-o", str(path))
        subprocess.run(["perf", "record", *options, "--", "sleep", str(_LOAD_S)], capture_output=True, check=True)
        snapshot = cpu.interval()
        spent = {name: traffic.cpu_ns(each.pid) - before[name] for name, each in running.items()}
    ours = {
        Path(row.group["cgroup"]).name: sum(row.parts[part].ns for part in _CALLS if part in row.parts)
        for row in snapshot.rows
    }
    samples = in_calls(_printed(path))
    if missing := sorted(spent.keys() - ours.keys()):
        raise ToolError(f"the accounting has no row for {', '.join(missing)}")
    return {name: Taken(ours[name], spent[name], *samples.get(name, (0, 0))) for name in running}


def _printed(path: Path) -> list[str]:
    printed = subprocess.run(["perf", "script", "-i", str(path)], capture_output=True, text=True, check=False)
    return printed.stdout.splitlines()


def in_calls(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return process → its samples in calls that send and receive, but not in a softirq meanwhile; and all of it."""
    found: dict[str, tuple[int, int]] = {}
    for stack, count in folded(lines).items():
        name, *frames = stack.split(";")
        calls, samples = found.get(name, (0, 0))
        own = not _ENTRIES.isdisjoint(frames) and _SOFTIRQS.isdisjoint(frames)
        found[name] = calls + own * count, samples + count
    return found


def _answers(network: _Network, condition: str) -> Figures:
    hz = {"cpu": 0, "cpu, 1 kHz": 1000}.get(condition)
    with (
        contextlib.nullcontext() if hz is None else tools.running(tools.cpu(hz)),
        _asked(network, _LOAD_S) as (running, asking),
    ):
        before_ns = sum(traffic.cpu_ns(each.pid) for each in running.values())
        spent_ns = 0.0
        times = []
        for each in asking:
            summary = each.result()
            times.append((summary.rtt_p50_ns, summary.rtt_p99_ns))
        spent_ns = sum(traffic.cpu_ns(each.pid) for each in running.values()) - before_ns
    p50, p99 = (statistics.median(each) for each in zip(*times, strict=True))
    return {"p50": p50, "p99": p99, "cpu": spent_ns / _LOAD_S}
