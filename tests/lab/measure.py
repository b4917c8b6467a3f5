# SPDX-License-Identifier: Apache-2.0
"""What the accuracy tests share: a path with known traffic on it, a run on that path alone, and independent counts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import hopscope
from hopscope.lab import Workload
from hopscope.probes.attach import cgroup_root
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests import leftovers
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab, Namespace
    from hopscope.model.histogram import Histogram
    from hopscope.model.snapshot import Snapshot

MS = 1_000_000
# Nothing here blocks for longer: a hung test is a failed one.
TIMEOUT_S = 20.0
_SO_RCVBUFFORCE = 33
UDP_DATA_HOPS = ("rx.udp", "rx.udp_queue", "rx.udp_read", "rx.udp_total")
TCP_DATA_HOPS = ("rx.tcp_queue", "rx.tcp_read", "rx.tcp_total")
_READ_HOPS = ("rx.udp_read", "rx.udp_total")
_UNSEEN_READ = ("rx.udp_read", "unseen")
PATH_NAMES = ("veth-4", "veth-6", "lo-4", "lo-6")
# TIME_WAIT, CLOSE, LISTEN, as in /proc/net/tcp.
_AT_REST = {"06", "07", "0A"}
_ADDRESSES = {"veth-4": "10.77.0.2", "veth-6": "fd77::2", "lo-4": "127.0.0.1", "lo-6": "::1"}


@dataclass(frozen=True)
class NetworkPath:
    """From where to where packets go."""

    sender: Namespace
    receiver: Namespace
    host: str
    ifname: str

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def way(lab: Lab, name: str) -> NetworkPath:
    sender = lab.client if name.startswith("veth") else lab.server
    return NetworkPath(sender, lab.server, _ADDRESSES[name], "server0" if name.startswith("veth") else "lo")


def run(lab: Lab, **options: Any) -> RxCollector:  # noqa: ANN401 - whatever RxOptions takes
    """Return a collector that sees the lab and nothing else of this machine."""
    return RxCollector(RxOptions(namespaces=[lab.client.inode, lab.server.inode], **options))


def histogram(snapshot: Snapshot, hop: str, **group: str) -> Histogram:
    """Return the histogram of a hop and group; it must be there exactly once."""
    (row,) = [row for row in snapshot.hops if row.hop == hop and row.group == group]
    return row.histogram


def counts(snapshot: Snapshot) -> dict[str, int]:
    """Return the samples of each hop, the groups added up."""
    result: dict[str, int] = {}
    for row in snapshot.hops:
        result[row.hop] = result.get(row.hop, 0) + row.histogram.count
    return result


def group_counts(snapshot: Snapshot, hop: str) -> dict[str, int]:
    """Return the samples of each group of a hop that has any."""
    return {
        next(iter(row.group.values())): row.histogram.count
        for row in snapshot.hops
        if row.hop == hop and row.histogram.count
    }


def discarded(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Return hop and reason of what was discarded.

    Without ``no_stamp`` and ``no_entry``: where a packet without a stamp belongs to cannot be told, so that it may be
    another's on this machine. One of ours would be missing in the counts.
    """
    return {key: count for key, count in all_discarded(snapshot).items() if key[1] not in {"no_stamp", "no_entry"}}


def all_discarded(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    return {(row.hop, row.reason): row.count for row in snapshot.discarded}


def assert_each(snapshot: Snapshot, hops: tuple[str, ...], expected: int) -> None:
    """Each of these hops has so many samples, and nothing of ours was discarded.

    But for one in a hundred datagrams whose reads were not recognised, which must be said: a reader that does not sleep
    returns before the CPU that queues has come to its hook, where the host of a virtual machine takes that CPU away.
    """
    unseen = unseen_datagrams(snapshot)
    assert unseen <= expected // 100
    found = {hop: count + unseen * (hop in _READ_HOPS) for hop, count in counts(snapshot).items() if hop in hops}
    assert found == dict.fromkeys(hops, expected), (found, all_discarded(snapshot))
    others = {key: count for key, count in discarded(snapshot).items() if key != _UNSEEN_READ}
    assert others == {}, others
    assert_accounted(snapshot)


def assert_accounted(snapshot: Snapshot) -> None:
    """What entered is what became of it, to the packet: the traffic is at rest."""
    packets = snapshot.packets
    if packets is None:
        return
    known = packets.read + packets.queued + packets.under_way + packets.ended("dropped") + packets.ended("discarded")
    assert packets.before + packets.entered == known, packets
    assert packets.unaccounted == 0, packets


def unseen_datagrams(snapshot: Snapshot) -> int:
    """Return how many datagrams were read that no hook saw arriving."""
    return all_discarded(snapshot).get(_UNSEEN_READ, 0)


@contextlib.contextmanager
def udp_pair(path: NetworkPath, *, bind: str | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a sender that is connected, and the receiver."""
    with (
        path.receiver.call(socket.socket, path.family, socket.SOCK_DGRAM) as receiver,
        path.sender.call(socket.socket, path.family, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind((bind or path.host, 0))
        sender.connect((path.host, receiver.getsockname()[1]))
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        limit(receiver)
        yield sender, receiver


@contextlib.contextmanager
def tcp_pair(path: NetworkPath) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of a connection that sends each message at once: the one that connected first."""
    with (
        path.receiver.call(socket.create_server, (path.host, 0), family=path.family) as listener,
        path.sender.call(socket.create_connection, listener.getsockname()[:2], TIMEOUT_S) as sender,
        listener.accept()[0] as receiver,
    ):
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit(receiver)
        limit(sender)
        yield sender, receiver


def limit(sock: socket.socket) -> None:
    """Let no call block for ever, by the kernel's own time-out: Python's would poll first and read then."""
    sock.settimeout(None)
    seconds = int(TIMEOUT_S).to_bytes(8, "little") + bytes(8)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


def wait_acknowledged(sender: socket.socket) -> None:
    """Wait until the other end of a TCP connection has said that it has all."""
    eventually(lambda: not any(fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4))))


def wait_at_rest(*namespaces: Namespace) -> None:
    """Wait until no TCP connection in them has anything to send or to acknowledge."""
    for namespace in namespaces:
        eventually(lambda namespace=namespace: not namespace.call(_under_way))


def _under_way() -> list[str]:
    """Return the connections of this thread's namespace that have still something to send or to acknowledge."""
    files = (Path("/proc/thread-self/net") / name for name in ("tcp", "tcp6"))
    lines = [line for file in files for line in file.read_text().splitlines()[1:]]
    return [line for line in lines if line.split()[3] not in _AT_REST]


def ping(sender: socket.socket, receiver: socket.socket, messages: int, len_bytes: int = 100) -> int:
    """Send and read messages one by one, so that each is one packet; return how many the reader had.

    All on one CPU: where a softirq is late, a reader elsewhere could be back before its hooks have run.
    """
    had, allowed = 0, os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        for _ in range(messages):
            sender.send(bytes(len_bytes))
            had += len(receiver.recv(65_536)) == len_bytes
    finally:
        os.sched_setaffinity(0, allowed)
    return had


def sink_traffic(path: NetworkPath, messages: int, *options: Any) -> int:  # noqa: ANN401 - words
    """Send so many datagrams to a process with these options, and return its PID, once it has read all."""
    with Workload(path.receiver, "udp-sink", "--bind", path.host, "--count", messages, *options) as sink:
        Workload(path.sender, "udp-send", path.host, sink.port, "--count", messages, "--rate", 2000).result()
        sink.result()
        return sink.pid


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """Yield a cgroup of the test's own."""
    path = cgroup_root() / f"hopscope-test-{os.getpid()}-{name}"
    path.mkdir()
    try:
        yield path
    finally:
        path.rmdir()


@contextlib.contextmanager
def in_thread(act: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run `act` beside the body, in the thread that is yielded; what it raises is raised here at the end."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield thread
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


class Tcpdump:
    """Counts packets that arrive at an interface, from another point of view."""

    def __init__(self, path: NetworkPath, expression: str) -> None:
        argv = ["tcpdump", "-p", "-n", "-s", "128", "-i", path.ifname, "-w", "/dev/null", expression]
        self._child = path.receiver.popen(argv, stderr=subprocess.PIPE, text=True)
        self._on_lo = path.ifname == "lo"
        self.packets = -1

    def __enter__(self) -> Self:
        assert self._child.stderr is not None
        assert "listening on" in self._child.stderr.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(signal.SIGINT)
        _, words = self._child.communicate(timeout=TIMEOUT_S)
        # What the kernel's filter let pass, taken or not. On lo a tap sees each packet leave and arrive.
        (passed,) = re.findall(r"(\d+) packets? received by filter", words)
        self.packets = int(passed) // (2 if self._on_lo else 1)


def udp_datagrams_read(path: NetworkPath) -> int:
    """Return how many datagrams the kernel says were read in the receiving namespace."""
    return path.receiver.call(_udp_in_datagrams, path.family)


def _udp_in_datagrams(family: socket.AddressFamily) -> int:
    folder = Path("/proc/thread-self/net")
    if family == socket.AF_INET6:
        values = dict(line.split() for line in (folder / "snmp6").read_text().splitlines())
        return int(values["Udp6InDatagrams"])
    names, numbers = (line.split() for line in (folder / "snmp").read_text().splitlines() if line.startswith("Udp:"))
    return int(numbers[names.index("InDatagrams")])


def assert_killed_leaves_nothing(script: str) -> None:
    """Run a script that prints ``attached`` and holds programs, and kill it: the kernel must have freed them all.

    Parameters
    ----------
    script
        Of Python; it stays until it is killed.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(hopscope.__file__).parents[1])}
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"attached\n"
        held = leftovers.held_by([holder.pid])
        assert {"prog", "link"} <= {kind for kind, _ in held}
        holder.send_signal(signal.SIGKILL)
    eventually(lambda: not leftovers.still_there(held))
