# SPDX-License-Identifier: Apache-2.0
"""A client and a server with a router between them, in namespaces of their own, and messages that the one sends."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hopscope.lab import Namespace
from tests.lab.command import hopscope

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES, LEN_BYTES = 23, 1009
PORT, SERVICE_PORT = 8000, 80
CLIENT, ROUTER, BEHIND, SERVER = "10.78.1.2", "10.78.1.1", "10.78.2.1", "10.78.2.2"

# Namespaces of the client and the server, and where the client connects to.
TRAFFIC = f"""
import os, socket, sys, threading
from hopscope.setns import setns_net

def enter(pid):
    setns_net(os.open(f"/proc/{{pid}}/ns/net", os.O_RDONLY))

def reading(make):
    thread = threading.Thread(target=make)
    thread.start()
    return thread

def drain():
    connection, _ = listener.accept()
    while size := len(connection.recv(65536)):
        arrived.release(size)

client, server, host, port = sys.argv[1:]
enter(server)
listener = socket.create_server(("", {PORT}))
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(("", {PORT}))
arrived = threading.Semaphore(0)
reader = reading(drain)
enter(client)
with socket.create_connection((host, int(port))) as sender:
    # Each is read before the next one is sent, and is sent at once: a packet each, however late the reader is.
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range({MESSAGES}):
        sender.sendall(bytes({LEN_BYTES}))
        for _ in range({LEN_BYTES}):
            arrived.acquire()
reader.join()
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    sender.connect((host, int(port)))
    for _ in range({MESSAGES}):
        reader = reading(lambda: receiver.recv(65536))
        sender.send(bytes({LEN_BYTES}))
        reader.join()
"""


Network = tuple[Namespace, Namespace, Namespace]


@contextmanager
def routed() -> Iterator[Network]:
    """Return a client, a router and a server."""
    with cabled() as (client, router, server):
        for end, address, far, gateway in ((client, CLIENT, "in0", ROUTER), (server, SERVER, "out0", BEHIND)):
            run(end, f"ip addr add {address}/24 dev far0", f"ip route add default via {gateway}")
            run(router, f"ip addr add {gateway}/24 dev {far}")
        router.sysctl("net.ipv4.ip_forward", 1)
        yield client, router, server


@contextmanager
def cabled() -> Iterator[Network]:
    """Return a client and a server, whose devices are called far0, and a host between them with in0 and out0."""
    with Namespace() as client, Namespace() as router, Namespace() as server:
        for end, far in ((client, "in0"), (server, "out0")):
            run(end, f"ip link add far0 type veth peer name {far} netns {router.pid}", "ip link set far0 up")
            run(router, f"ip link set {far} up")
        yield client, router, server


def run(namespace: Namespace, *commands: str) -> None:
    """Run commands that must work."""
    for command in commands:
        done = namespace.run(command.split(), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def load_rules(namespace: Namespace, rules: str) -> str:
    """Load rules of nft; return why the kernel refuses them, if it does."""
    done: subprocess.CompletedProcess[str] = namespace.run(
        ["nft", "-f", "-"], input=rules, capture_output=True, text=True
    )
    assert "syntax error" not in done.stderr
    return done.stderr if done.returncode else ""


def record(network: Network, folder: Path, host: str, port: int) -> None:
    """Record :data:`MESSAGES` messages of TCP, and as many datagrams, that the client sends to an address."""
    client, _, server = network
    only = [f"--netns={each.inode}" for each in network]
    words = (sys.executable, "-c", TRAFFIC, client.pid, server.pid, host, port)
    done = hopscope("record", "-o", folder, "-P", "messages", *only, "--", *words)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stderr + done.stdout


def ways(folder: Path) -> dict[str, list[list[str]]]:
    """Return flow's name → of each packet with :data:`LEN_BYTES` of payload, its points and devices in order of time.

    A packet with several flows stands under the first. The return of a driver's function is left out.
    """
    done = hopscope("report", "packets", "--json", "--limit", "0", folder)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    packets = defaultdict(list)
    for row in rows:
        if row["kind"] in {"packet", "clone"} and row["point"] != "tx.driver":
            packets[row["packet"]].append(row)
    found = defaultdict(list)
    for own in packets.values():
        if any(f"len {LEN_BYTES + headers}" in own[0]["says"] for headers in (42, 66)):  # of UDP, of TCP
            name = own[0]["flow_name"].partition(",")[0]
            found[name].append([f"{row['point']} {row['interface'] or ''}".strip() for row in own])
    return found
