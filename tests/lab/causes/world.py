# SPDX-License-Identifier: Apache-2.0
"""Where a scenario happens: two hosts that are namespaces, and what is done to them before traffic runs.

All of it belongs to the namespaces, and goes with them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.lab import Namespace, Tbf, shape
from hopscope.lab.netlink import add_addresses, add_neighbours, add_veth, wait_local, wait_up
from tests.lab.causes.actors.common import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.lab.causes.actors.common import Options

    Prepare = Callable[["World"], None]

NETWORK: Final = "10.78.0.0/24"
CLIENT: Final = "10.78.0.1"
SERVER: Final = "10.78.0.2"
DEVICE: Final = "client0"
_SERVER_DEVICE: Final = "server0"
_ROOT: Final = Path(__file__).parents[3]
_MTU_BYTES: Final = 1500
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x1002
# Where the CPU controller has a hierarchy of its own (cgroup v1, hybrid), else version 2.
_CPU_GROUPS: Final = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


class World:
    """Hosts `client` and `server`, joined by a veth pair or by a wire (`actors.wire`).

    Parameters
    ----------
    wire
        The wire's options.
    """

    def __init__(self, wire: Options | None = None) -> None:
        with contextlib.ExitStack() as stack:
            self.client = stack.enter_context(Namespace())
            self.server = stack.enter_context(Namespace())
            self.wire = self._lay(stack, wire)
            self.macs = {}
            for end, ifname, address in self._ends():
                self.macs[address] = end.call(add_addresses, ifname, (address,))
            for end, ifname, address in self._ends():
                end.call(add_neighbours, ifname, *self._other(address))
                if not wire:
                    end.call(wait_up, ifname)
                end.call(wait_local, (address,))
            self.stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.__exit__(*error)  # type: ignore[arg-type]

    def _ends(self) -> tuple[tuple[Namespace, str, str], ...]:
        return (self.client, DEVICE, CLIENT), (self.server, _SERVER_DEVICE, SERVER)

    def _other(self, address: str) -> tuple[str, tuple[str]]:
        other = SERVER if address == CLIENT else CLIENT
        return self.macs[other], (other,)

    def _lay(self, stack: contextlib.ExitStack, wire: Options | None) -> Actor | None:
        if wire is None:
            # A recording knows a device by its index and the number of its namespace, which may soon be another end's.
            self.server.run(["ip", "link", "add", "first", "type", "veth", "peer", "second"], check=True)
            self.server.run(["ip", "link", "del", "first"], check=True)
            self.client.call(add_veth, DEVICE, _SERVER_DEVICE, self.server.pid, _MTU_BYTES)
            return None
        fds = [end.call(_tap, ifname) for end, ifname, _ in self._ends()]
        for fd in fds:
            stack.callback(os.close, fd)
        whole_segments(self)
        made = Actor(self.client, "wire", wire | {"fds": fds}, fds)
        stack.callback(made.kill)
        return made

    def actor(self, end: Namespace, role: str, **options: Any) -> Actor:  # noqa: ANN401 - of its role
        """Start a process of a scenario at an end; it is killed with the world."""
        made = Actor(end, role, options)
        self.stack.callback(made.kill)
        return made


class Actor:
    """A process of a scenario; where it says when it is ready, it is."""

    def __init__(self, end: Namespace, role: str, options: Options, fds: Sequence[int] = ()) -> None:
        self.role = role
        self._child: subprocess.Popen[str] = end.popen(
            [sys.executable, "-S", "-m", "tests.lab.causes.actors", role, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            pass_fds=fds,
        )
        self.pid = self._child.pid
        if role not in {"sender", "locker", "asker"}:
            assert self._child.stdout
            if self._child.stdout.readline() != "ready\n":
                self.result()

    def end(self) -> Options:
        """Ask it to end, and return what it saw."""
        self._child.send_signal(signal.SIGTERM)
        return self.result()

    def result(self) -> Options:
        """Wait for its end, and return what it saw."""
        stdout, stderr = self._child.communicate(timeout=LIMIT_S + 2)
        if self._child.returncode:
            raise RuntimeError(f"{self.role} ended with status {self._child.returncode}: {stderr}")
        found: Options = json.loads(stdout)
        return found

    def kill(self) -> None:
        self._child.kill()
        self._child.communicate()


def _tap(ifname: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", ifname.encode(), _TAP_WITHOUT_HEADER))
    return fd


def whole_segments(world: World) -> None:
    """Have TCP make each segment a packet of its own, so that a queue and a wire have what the receiver gets."""
    world.client.run(["ip", "link", "set", DEVICE, "gso_max_segs", "1"], check=True)


def shaped(rate_bit_s: int, burst_bytes: int) -> Prepare:
    """Return what puts a token bucket on the client's device."""

    def do(world: World) -> None:
        whole_segments(world)
        shape(world.client, DEVICE, Tbf(rate_bit_s, burst_bytes))

    return do


def dropping_first(rate_bit_s: int, burst_bytes: int, packets: int) -> Prepare:
    """Return what has packets wait for the tokens of a bucket in a queue that, when it is full, drops its first one."""

    bucket = ("root", "handle", "1:", "tbf", "rate", f"{rate_bit_s}bit", "burst", f"{burst_bytes}b", "limit", "1mb")
    queue = ("parent", "1:1", "pfifo_head_drop", "limit", f"{packets}")

    def do(world: World) -> None:
        whole_segments(world)
        for what in (bucket, queue):
            world.client.run(["tc", "qdisc", "replace", "dev", DEVICE, *what], check=True)

    return do


def route(*metrics: str) -> Prepare:
    """Return what gives the client's route to the server metrics, as ``ip route`` has them."""

    def do(world: World) -> None:
        world.client.run(["ip", "route", "replace", f"{SERVER}/32", "dev", DEVICE, *metrics], check=True)

    return do


def settings(**values: int) -> Prepare:
    """Return what sets the client's net.ipv4 settings."""

    def do(world: World) -> None:
        for name, value in values.items():
            world.client.sysctl(f"net.ipv4.{name}", value)

    return do


def firewall(chain: str, *rules: str) -> Prepare:
    """Return what gives the server rules of nftables, or for what is sent, the client; `chain` is the hook's name."""
    lines = "\n".join(rules)

    def do(world: World) -> None:
        script = f"table inet t {{\nchain c {{\ntype filter hook {chain} priority 0;\n{lines}\n}}\n}}\n"
        end = world.client if chain in {"output", "postrouting"} else world.server
        end.run(["nft", "-f", "-"], input=script.encode(), check=True)

    return do


def asking(world: World) -> None:
    """Let the client ask for the address of its neighbour once that is forgotten; nobody answers."""
    world.client.run(["ip", "link", "set", DEVICE, "arp", "on"], check=True)
    world.client.call(add_neighbours, DEVICE, world.macs[SERVER], (SERVER,))


def receiving_on(cpu: int) -> Prepare:
    """Return what has a CPU receive all that comes to the server (RPS)."""

    def do(world: World) -> None:
        _of_device(world, "queues/rx-0/rps_cpus", f"{1 << cpu:x}")

    return do


def threaded_on(cpu: int) -> Prepare:
    """Return what has a thread poll the server's device, on one CPU."""

    def do(world: World) -> None:
        _with_gro(world)
        before = _pollers()
        _of_device(world, "threaded", "1")
        for tid in _pollers() - before:
            os.sched_setaffinity(tid, {cpu})

    return do


def keeping(ms: float) -> Prepare:
    """Return what lets GRO of the server's device keep packets for so many ms."""

    def do(world: World) -> None:
        _with_gro(world)
        _of_device(world, "gro_flush_timeout", f"{ms * 1e6:.0f}")

    return do


def _with_gro(world: World) -> None:
    # What has large segments, veth takes past GRO.
    world.client.run(["ethtool", "-K", DEVICE, "tso", "off"], check=True)
    world.server.run(["ethtool", "-K", _SERVER_DEVICE, "gro", "on"], check=True)


def _of_device(world: World, name: str, value: str) -> None:
    # /sys has the devices of the namespace in which it was mounted.
    script = f"mount -t sysfs none /sys && echo {value} >/sys/class/net/{_SERVER_DEVICE}/{name}"
    world.server.run(["unshare", "-m", "sh", "-c", script], check=True)


def _pollers() -> set[int]:
    """Return the threads that poll devices of the name that the server's has."""
    found = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if comm.read_text().startswith(f"napi/{_SERVER_DEVICE}-"):
                found.add(int(comm.parent.name))
    return found


def _as_postgres(argv: Sequence[str], said: bytes = b"") -> None:
    subprocess.run(argv, user="postgres", group="postgres", cwd="/", input=said, check=True, capture_output=True)


@functools.cache
def postgres() -> Options:
    """Return where PostgreSQL's programs are, and a new cluster with the table `things`."""
    folders = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    programs = os.pathsep.join(folders)
    cluster = tempfile.mkdtemp(prefix="hopscope-causes-")
    atexit.register(shutil.rmtree, cluster)
    shutil.chown(cluster, "postgres")
    initdb, single = (shutil.which(name, path=programs) for name in ("initdb", "postgres"))
    if not initdb or not single:
        raise RuntimeError("PostgreSQL is not installed: run tools/setup bench")
    arguments = ["-D", cluster, "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions", "-E", "UTF8"]
    _as_postgres([initdb, *arguments])
    with Path(cluster, "pg_hba.conf").open("a", encoding="utf-8") as file:
        file.write("host all all all trust\n")
    made = b"CREATE TABLE things AS SELECT generate_series(1, 100);\n"
    _as_postgres([single, "--single", "-D", cluster, "postgres"], made)
    return {"programs": programs, "cluster": cluster}


@contextlib.contextmanager
def cpu_group(name: str, quota_us: int, period_us: int) -> Iterator[str]:
    """Make a cgroup whose processes have so much CPU time a period, and remove it in the end."""
    folder = next(root for root in _CPU_GROUPS if root.is_dir()) / name
    folder.mkdir()
    try:
        if (folder / "cpu.cfs_quota_us").exists():
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {period_us}")
        yield str(folder)
    finally:
        folder.rmdir()
