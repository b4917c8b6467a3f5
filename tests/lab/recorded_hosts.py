# SPDX-License-Identifier: Apache-2.0
"""Two hosts for ``record --host``: namespaces with an sshd each, what is recorded of them, and their agents."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.lab import Lab
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from hopscope.store.hosts import Hosts
from hopscope.store.trace import Trace
from tests.lab.command import start
from tests.lab.sshd import Sshd, client
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab.namespaces import Namespace

PORT = 7777


class Pair:
    """Hosts ``a`` and ``b`` with a link between them; whoever records them does so from ``a``."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.sshd = {
            "a": Sshd(lab.client, folder / "sshd-a", address=CLIENT_IPV4),
            "b": Sshd(lab.server, folder / "sshd-b", address=SERVER_IPV4),
        }
        self.ssh = client(folder, self.sshd, lab.client)
        self.namespaces: dict[str, Namespace] = {"a": lab.client, "b": lab.server}

    def close(self) -> None:
        for each in self.sshd.values():
            each.close()

    def words(self, out: Path, *options: object, hosts: tuple[str, ...] = ("a", "b")) -> list[object]:
        """Return the words of a recording of nothing but these hosts."""
        named = [word for host in hosts for word in ("--host", host)]
        return ["record", *named, "--ssh", self.ssh, "--netns", "self", "-o", out, *options]

    def record(self, out: Path, *options: object, hosts: tuple[str, ...] = ("a", "b")) -> tuple[int, str]:
        """Record to the end; return the exit code and what was said."""
        child = start(*self.words(out, *options, hosts=hosts))
        return finished(child)

    def begun(self, out: Path, *options: object, hosts: tuple[str, ...] = ("a", "b")) -> subprocess.Popen[str]:
        """Return a recording that has begun on all hosts."""
        child = start(*self.words(out, *options, hosts=hosts))
        eventually(lambda: child.poll() is not None or all(self.began(out, host) for host in hosts), "never began")
        assert child.poll() is None, child.communicate()
        return child

    def began(self, out: Path, part: str) -> bool:
        return (out / part / "hopscope.json").exists()

    def sending(self, count: int, host: str = "a") -> list[str]:
        """Return the words of a program that has datagrams sent from a host to the other one."""
        there = SERVER_IPV4 if host == "a" else CLIENT_IPV4
        code = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range({count}):
    sender.sendto(number.to_bytes(100, "big"), ("{there}", {PORT}))
"""
        return ["nsenter", f"--net=/proc/{self.namespaces[host].pid}/ns/net", sys.executable, "-c", code]

    def send(self, count: int, host: str = "a") -> None:
        subprocess.run(self.sending(count, host), check=True)

    def agents(self, host: str) -> list[int]:
        """Return the agents that run on a host."""
        return [pid for pid in agents() if namespace_of(pid) == self.namespaces[host].inode]


@contextlib.contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Yield two hosts."""
    with Lab() as lab:
        made = Pair(lab, folder)
        try:
            yield made
        finally:
            made.close()


def finished(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; return the exit code and what was said."""
    out, err = child.communicate(timeout=TIMEOUT_S)
    assert out == ""
    return child.returncode, err


def stopped(child: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    child.send_signal(number)
    return finished(child)


def agents() -> list[int]:
    """Return the agents of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[1:4] == [b"-m", b"hopscope", b"agent"]:
                found.append(int(path.parent.name))
    return found


def namespace_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return 0


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def counted(folder: Path, point: str, port: int = PORT) -> int:
    """Return how many packets to a port passed a point, in one host's trace."""
    with Trace(folder) as trace:
        ((count,),) = trace.rows(
            "SELECT count(*) FROM packets JOIN points USING (point) JOIN flows USING (flow) "
            f"WHERE name = '{point}' AND destination_port = {port} AND protocol = 17"
        )
    return int(count)


def ports(folder: Path) -> set[int]:
    """Return the ports of all flows of TCP and UDP in a trace."""
    with Trace(folder) as trace:
        rows = trace.rows("SELECT source_port, destination_port FROM flows WHERE protocol IN (6, 17)")
    return {port for row in rows for port in row}


def parts(out: Path) -> dict[str, list[str]]:
    """Return the parts of each host, from hosts.json."""
    return {host.name: host.parts for host in Hosts.read(out).hosts}
