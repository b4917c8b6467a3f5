# SPDX-License-Identifier: Apache-2.0
"""Figures of the kernel's text files: those that nstat, ss and sysctl show, and that known traffic makes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.kernel.counters import sysctl_names
from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab.netlink import add_veth
from hopscope.model.counters.deltas import moves
from hopscope.model.counters.readings import HOST, Key, Readings
from hopscope.model.counters.sources import LAYERS_OF_NAMES, SOURCES, layer_of
from tests.kernel.counters.measure import HOST_NETNS, OWN_NETNS, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Namespace

pytestmark = pytest.mark.root

# What nstat leaves out of the files: they do not count.
_NOT_OF_NSTAT: Final = {
    "IpForwarding", "IpDefaultTTL", "TcpRtoAlgorithm", "TcpRtoMin", "TcpRtoMax", "TcpMaxConn", "TcpCurrEstab",
}  # fmt: skip
_TRIES: Final = 100
_DATAGRAMS: Final = 1009
_BYTES: Final = 100
_TEXTS: Final = frozenset({
    "snmp", "snmp6", "netstat", "sockstat", "udp_socket", "conntrack", "sysctl", "interrupt", "softirq", "softnet",
    "neighbour", "route", "pressure", "memory", "cpu", "clock",
})  # fmt: skip


def plain(readings: Readings, *sources: str) -> dict[str, int]:
    """What the sources said that have but one subject."""
    return {key.name: value for key, value in readings.numbers.items() if key.source in sources}


def counted(namespace: Namespace, act: Callable[[], object], *sources: str) -> dict[tuple[str, str], int]:
    """What was counted in a namespace while something was done."""
    with CounterReader([namespace.inode], sources) as reader:
        before = reader.read()
        act()
        now = reader.read()
    assert not [*before.unread, *now.unread]
    return {(move.key.subject, move.key.name): move.by for move in moves(before, now)}


def nstat(namespace: Namespace) -> dict[str, int]:
    argv = ["env", "NSTAT_HISTORY=/dev/null", "nstat", "-a", "-s", "-z", "-j"]
    said = namespace.run(argv, capture_output=True, check=True).stdout
    return {name: int(value) for name, value in json.loads(said)["kernel"].items()}


def send_udp(namespace: Namespace, host: str, count: int, *, read: bool = True) -> socket.socket:
    """Send datagrams to a socket of the namespace itself, one after the other; return it, which is still open."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server, client = (namespace.call(socket.socket, family, socket.SOCK_DGRAM) for _ in range(2))
    server.settimeout(10)
    server.bind((host, 5353))
    client.connect((host, 5353))
    with client:
        for _ in range(count):
            client.send(bytes(_BYTES))
            if read:
                server.recv(_BYTES)
    return server


def talk_tcp(namespace: Namespace, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with namespace.call(socket.socket, family) as listener, namespace.call(socket.socket, family) as client:
        listener.bind((host, 0))
        listener.listen()
        client.connect(listener.getsockname()[:2])
        server, _ = listener.accept()
        with server:
            client.sendall(b"question")
            server.recv(100)
            server.sendall(b"answer")
            client.recv(100)


def steady(ask: Callable[[], object], act: Callable[[], Readings]) -> tuple[object, Readings]:
    """Return what another tool says and what we say, when nothing moved between its saying so twice."""
    for _ in range(_TRIES):
        first = ask()
        readings = act()
        if ask() == first:
            return first, readings
    pytest.fail(f"it never stood still in {_TRIES} tries")


def test_protocols_are_as_nstat_has_them(quiet: Namespace) -> None:
    for host in ("127.0.0.1", "::1"):
        send_udp(quiet, host, 7).close()
        talk_tcp(quiet, host)
        closed = quiet.call(socket.socket, socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        with closed, contextlib.suppress(OSError):  # nobody is there: ICMP
            closed.connect((host, 9))
            closed.send(b"")
            closed.send(b"")
    said, readings = steady(lambda: nstat(quiet), lambda: read(quiet.inode, "snmp", "snmp6", "netstat"))
    found = plain(readings, "snmp", "snmp6", "netstat")
    assert not readings.unread
    assert found.keys() - _NOT_OF_NSTAT == said.keys()
    assert {name: found[name] for name in said} == said
    assert min(found[name] for name in ("UdpNoPorts", "Udp6NoPorts", "IcmpMsgOutType3", "TcpActiveOpens")) > 0


@pytest.mark.parametrize(("host", "udp", "ip"), [("127.0.0.1", "Udp", "Ip"), ("::1", "Udp6", "Ip6")])
def test_datagrams_are_counted_one_by_one(quiet: Namespace, host: str, udp: str, ip: str) -> None:
    sockets = []
    found = counted(quiet, lambda: sockets.append(send_udp(quiet, host, _DATAGRAMS)), "snmp", "snmp6", "netstat")
    sockets[0].close()
    octets = "IpExt{}Octets" if ip == "Ip" else "Ip6{}Octets"
    length = _DATAGRAMS * (_BYTES + 8 + (20 if ip == "Ip" else 40))
    expected = {
        f"{udp}InDatagrams": _DATAGRAMS, f"{udp}OutDatagrams": _DATAGRAMS,
        f"{ip}InReceives": _DATAGRAMS, f"{ip}InDelivers": _DATAGRAMS, f"{ip}OutRequests": _DATAGRAMS,
        octets.format("In"): length, octets.format("Out"): length,
    }  # fmt: skip
    assert {name: found["", name] for name in expected} == expected
    # Kernels differ in whether they tell what was sent from what was asked for, and by congestion marks.
    others = {name for _, name in found} - expected.keys()
    assert others <= {f"{ip}OutTransmits", "IpExtInNoECTPkts", "Ip6InNoECTPkts"}
    assert all(found["", name] == _DATAGRAMS for name in others)


@pytest.mark.parametrize(("host", "udp"), [("127.0.0.1", "Udp"), ("::1", "Udp6")])
def test_socket_that_drops_is_named(quiet: Namespace, host: str, udp: str) -> None:
    """What did not fit into its buffer, exactly; and no longer, when it is closed."""
    with CounterReader([quiet.inode], ["snmp", "snmp6", "udp_socket"]) as reader:
        before = reader.read()
        with send_udp(quiet, host, 2 * _DATAGRAMS, read=False) as server:
            now = reader.read()
            inode = os.fstat(server.fileno()).st_ino
        later = reader.read()
    found = {(move.key.subject, move.key.name): (move.by, move.how) for move in moves(before, now)}
    dropped = found["", f"{udp}RcvbufErrors"][0]
    assert 0 < dropped < 2 * _DATAGRAMS
    address = f"[{host}]" if ":" in host else host
    subject = f"{address}:5353 inode {inode}"
    assert found[subject, "drops"] == (dropped, "appeared")
    assert found["", "drops_of_open_sockets"] == (dropped, "changed")
    assert found["", "sockets"] == (1, "changed")
    gone = {(move.key.name, move.by, move.how) for move in moves(now, later) if move.key.source == "udp_socket"}
    assert gone == {("drops_of_open_sockets", -dropped, "changed"), ("sockets", -1, "changed")}


def test_numbers_of_sockets_are_as_ss_has_them(quiet: Namespace) -> None:
    with contextlib.ExitStack() as stack:
        for family, kind, count in (
            (socket.AF_INET, socket.SOCK_DGRAM, 3),
            (socket.AF_INET6, socket.SOCK_DGRAM, 2),
            (socket.AF_INET, socket.SOCK_STREAM, 4),
            (socket.AF_INET6, socket.SOCK_STREAM, 1),
        ):
            for _ in range(count):
                made = stack.enter_context(quiet.call(socket.socket, family, kind))
                made.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
                if kind == socket.SOCK_STREAM:
                    made.listen()
        summary = quiet.run(["ss", "-s"], capture_output=True, check=True).stdout.decode()
        found = plain(read(quiet.inode, "sockstat"), "sockstat")
    split = [line.split() for line in summary.splitlines()]
    rows = {words[0]: [int(word) for word in words[1:]] for words in split if len(words) == 4 and words[1].isdigit()}
    for protocol in ("TCP", "UDP", "RAW"):
        four, six = found[f"{protocol}.inuse"], found[f"{protocol}6.inuse"]
        assert rows[protocol] == [four + six, four, six]
    assert rows["FRAG"][1:] == [found["FRAG.inuse"], found["FRAG6.inuse"]]
    assert [found[name] for name in ("UDP.inuse", "UDP6.inuse", "TCP.inuse", "TCP6.inuse")] == [3, 2, 4, 1]
    assert found["sockets.used"] == 10


def test_settings_are_as_sysctl_has_them(quiet: Namespace) -> None:
    quiet.call(add_veth, "a.b", "c-d", quiet.pid, 1500)
    quiet.sysctl("net.ipv4.tcp_rmem", "4096 50000 60000")
    quiet.sysctl("net.ipv4.ip_local_reserved_ports", "8080")
    quiet.call(Path("/proc/sys/net/ipv4/conf/a.b/rp_filter").write_text, "2")
    readings = read(quiet.inode, "sysctl")
    found = {
        (key.subject, key.name): value
        for key, value in itertools.chain(readings.numbers.items(), readings.words.items())
        if key.netns == quiet.inode
    }
    assert found["", "net.ipv4.tcp_rmem"] == "4096 50000 60000"
    assert found["", "net.ipv4.ip_local_reserved_ports"] == "8080"
    assert found["a.b", "net.ipv4.conf.*.rp_filter"] == 2
    assert found["c-d", "net.ipv4.conf.*.rp_filter"] == 0
    # sysctl(8) writes the dots of an interface as slashes.
    asked = {name.replace("*", subject.replace(".", "/")): str(value) for (subject, name), value in found.items()}
    said = quiet.run(["sysctl", *asked], capture_output=True, check=True).stdout.decode()
    listed = (line.partition(" =")[::2] for line in said.splitlines())
    assert {name: " ".join(value.split()) for name, value in listed} == asked
    known = quiet.run(["sysctl", "-aN"], capture_output=True, check=True).stdout.decode().split()
    assert {name for subject, name in found if not subject} == set(known) & set(sysctl_names.OF_NAMESPACE)


def test_settings_of_all_namespaces_are_as_sysctl_has_them(quiet: Namespace) -> None:
    def ask() -> dict[str, str]:
        known = subprocess.run(["sysctl", "-a"], capture_output=True, check=False).stdout.decode()
        listed = (line.partition(" =")[::2] for line in known.splitlines())
        return {name: " ".join(value.split()) for name, value in listed if name in sysctl_names.HOST_WIDE}

    # Whichever namespace is asked for: they are read in the first one.
    said, readings = steady(ask, lambda: read(quiet.inode, "sysctl"))
    both = itertools.chain(readings.numbers.items(), readings.words.items())
    assert {key.name: str(value) for key, value in both if key.netns == HOST} == said


def test_each_setting_has_one_place() -> None:
    names = [*sysctl_names.HOST_WIDE, *sysctl_names.OF_NAMESPACE]
    assert len(names) == len(set(names))
    assert not sysctl_names.WORDS - set(names)


def rows_of(path: str, base: int) -> list[list[int]]:
    return [[int(word, base) for word in line.split()] for line in Path(path).read_text().splitlines()]


def test_cpus_are_those_that_there_are() -> None:
    readings = read(OWN_NETNS.stat().st_ino, "softnet", "cpu", "softirq", "interrupt")
    count = int(subprocess.run(["nproc", "--all"], capture_output=True, check=True).stdout)
    online = len(os.sched_getaffinity(1))
    for source in ("softnet", "cpu"):
        subjects = {key.subject for key in readings.numbers if key.source == source} - {""}
        assert len(subjects) == online
    assert len({key.name for key in readings.numbers if key.source == "softirq"}) == count
    assert len({key.name for key in readings.numbers if key.source == "interrupt"} - {"total"}) == online
    assert readings.numbers[Key(HOST, "cpu", "", "ticks_per_second")] == os.sysconf("SC_CLK_TCK")


def test_softnet_lies_between_two_looks_at_the_file(quiet: Namespace) -> None:
    before = rows_of("/proc/net/softnet_stat", 16)
    send_udp(quiet, "127.0.0.1", _DATAGRAMS).close()
    readings = read(quiet.inode, "softnet")
    now = rows_of("/proc/net/softnet_stat", 16)
    columns = {"processed": 0, "dropped": 1, "time_squeeze": 2, "received_rps": 9, "flow_limit_count": 10}
    grown = 0
    for cpu, (first, last) in enumerate(zip(before, now, strict=True)):
        for name, column in columns.items():
            value = readings.numbers[Key(HOST, "softnet", f"cpu {cpu}", name)]
            assert 0 <= value - first[column] <= last[column] - first[column]
            grown += (value - first[column]) * (name == "processed")
    assert grown >= _DATAGRAMS


@pytest.mark.parametrize(
    ("source", "files"),
    [("neighbour", {"arp": "arp_cache", "ndisc": "ndisc_cache"}), ("route", {"": "rt_cache"})],
)
def test_tables_of_cpus_are_as_the_files_have_them(source: str, files: dict[str, str]) -> None:
    """In sum: a row does not say which CPU it is of."""

    def ask() -> dict[tuple[str, str], int]:
        found = {}
        for table, name in files.items():
            heading, *rows = Path(f"/proc/net/stat/{name}").read_text().splitlines()
            values = [[int(word, 16) for word in row.split()] for row in rows]
            names = heading.split()
            found |= {(table, name): sum(row[at] for row in values) for at, name in enumerate(names) if at}
            found[table, "entries"] = values[0][0]
        return found

    said, readings = steady(ask, lambda: read(HOST_NETNS, source))
    sums: dict[tuple[str, str], int] = {}
    for key, value in readings.numbers.items():
        label = (key.subject.partition("cpu ")[0].strip(), key.name)
        sums[label] = sums.get(label, 0) + value
    assert sums == said


def test_memory_pressure_and_clock_are_as_the_files_have_them() -> None:
    readings = read(0, "memory", "pressure", "clock")
    total = Path("/proc/meminfo").read_text().split()[1]
    assert readings.numbers[Key(HOST, "memory", "", "MemTotal_kB")] == int(total)
    assert readings.words[Key(HOST, "clock", "", "current_clocksource")] == (
        Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    )
    until = Path("/proc/pressure/memory").read_text().split()
    assert (
        0 <= readings.numbers[Key(HOST, "pressure", "", "memory.some.total_us")] <= int(until[4].removeprefix("total="))
    )


def test_conntrack_is_of_the_namespace(quiet: Namespace) -> None:
    if not Path("/proc/sys/net/netfilter/nf_conntrack_max").exists():
        pytest.skip("this kernel has no connection tracking, or it is not loaded")
    readings = read(quiet.inode, "conntrack")
    assert not readings.unread
    for name in ("count", "max", "buckets"):
        said = quiet.call(Path(f"/proc/sys/net/netfilter/nf_conntrack_{name}").read_text)
        assert readings.numbers[Key(quiet.inode, "conntrack", "", name)] == int(said)
    assert readings.numbers[Key(quiet.inode, "conntrack", "cpu 0", "insert_failed")] == 0


def test_all_text_sources_are_read_here() -> None:
    """As far as this kernel has them; what it lacks is told."""
    readings = read(OWN_NETNS.stat().st_ino, *_TEXTS)
    told = {each.source for each in readings.unread}
    assert {key.source for key in readings.numbers} | told == _TEXTS
    assert told <= {"conntrack", "pressure", "snmp6"}


def test_every_name_here_has_a_layer() -> None:
    """None falls through to the default, also of a kernel that is newer than the table."""
    prefixes = tuple(prefix for prefix, _ in LAYERS_OF_NAMES)
    readings = read(OWN_NETNS.stat().st_ino, *_TEXTS)
    by_name = {key for key in [*readings.numbers, *readings.words] if not SOURCES[key.source].layer}
    assert not [key for key in by_name if not key.name.startswith(prefixes)]
    assert {layer_of(key) for key in by_name} >= {"ip", "icmp", "tcp", "udp", "socket", "softnet", "neighbour"}
