# SPDX-License-Identifier: Apache-2.0
"""Messages of a real recording whose packets a router on this host translates: each is followed to its read."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.command import hopscope
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

MESSAGES, LEN_BYTES = 23, 1009
PORT, SERVICE_PORT = 8000, 80
CLIENT, ROUTER, BEHIND, SERVER = "10.78.1.2", "10.78.1.1", "10.78.2.1", "10.78.2.2"

# Namespaces of the client and the server, and where the client connects to.
TRAFFIC = f"""
import os, socket, sys, threading, time
from hopscope.setns import setns_net

def enter(pid):
    setns_net(os.open(f"/proc/{{pid}}/ns/net", os.O_RDONLY))

def reading(make):
    thread = threading.Thread(target=make)
    thread.start()
    return thread

def drain():
    connection, _ = listener.accept()
    while connection.recv(65536):
        pass

client, server, host, port = sys.argv[1:]
enter(server)
listener = socket.create_server(("{SERVER}", {PORT}))
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(("{SERVER}", {PORT}))
reader = reading(drain)
enter(client)
with socket.create_connection((host, int(port))) as sender:
    for _ in range({MESSAGES}):
        sender.sendall(bytes({LEN_BYTES}))
        time.sleep(0.002)
reader.join()
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    sender.connect((host, int(port)))
    for _ in range({MESSAGES}):
        reader = reading(lambda: receiver.recv(65536))
        sender.send(bytes({LEN_BYTES}))
        reader.join()
"""

DNAT = f"type nat hook prerouting priority -100; meta l4proto {{ tcp, udp }} th dport {SERVICE_PORT} dnat to"
KINDS = {
    "masquerade": "chain out { type nat hook postrouting priority 100; oifname out0 masquerade; };",
    "dnat": f"chain in {{ {DNAT} {SERVER}:{PORT}; }};",
}
KINDS["both"] = " ".join(KINDS.values())


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """Return a client, a router and a server."""
    with Namespace() as client, Namespace() as router, Namespace() as server:
        for end, address, far, gateway in (
            (client, CLIENT, "in0", ROUTER),
            (server, SERVER, "out0", BEHIND),
        ):
            run(end, f"ip link add far0 type veth peer name {far} netns {router.pid}")
            run(end, f"ip addr add {address}/24 dev far0", "ip link set far0 up")
            run(router, f"ip addr add {gateway}/24 dev {far}", f"ip link set {far} up")
            run(end, f"ip route add default via {gateway}")
        router.sysctl("net.ipv4.ip_forward", 1)
        yield client, router, server


def run(namespace: Namespace, *commands: str) -> None:
    for command in commands:
        done = namespace.run(command.split(), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture(params=KINDS)
def recorded(
    request: pytest.FixtureRequest, network: tuple[Namespace, Namespace, Namespace], tmp_path: Path
) -> tuple[str, Path]:
    client, router, server = network
    rules = f"table ip t {{ {KINDS[request.param]} }}\n"
    done = router.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True)
    if done.returncode:
        assert "syntax error" not in done.stderr
        pytest.skip(f"no NAT here: {done.stderr}")
    folder = tmp_path / "trace"
    where = (SERVER, PORT) if request.param == "masquerade" else (ROUTER, SERVICE_PORT)
    only = [f"--netns={each.inode}" for each in network]
    words = (sys.executable, "-c", TRAFFIC, client.pid, server.pid, *where)
    done = hopscope("record", "-o", folder, "-P", "messages", *only, "--", *words)
    run(router, "nft delete table ip t")
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stderr + done.stdout
    return request.param, folder


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_all_messages_are_followed_through_nat(recorded: tuple[str, Path], protocol: str) -> None:
    kind, folder = recorded
    done = hopscope("report", "messages", "--json", folder)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [row for row in rows if row["protocol"] == protocol]
    assert len(rows) == MESSAGES
    assert {(row["len_bytes"], row["until"]) for row in rows} == {(LEN_BYTES, "rx.received")}
    assert None not in {
        row[name] for row in rows for name in ("tx_queue_ns", "rx_driver_ns", "rx_l4_ns", "rx_ready_ns")
    }
    (before,), (after,) = ({row[name] for row in rows} for name in ("flow_name", "translated_to"))
    service = f"{SERVER}:{PORT}" if kind == "masquerade" else f"{ROUTER}:{SERVICE_PORT}"
    source = CLIENT if kind == "dnat" else BEHIND
    assert before.startswith(f"{CLIENT}:")
    assert before.endswith(f" > {service}")
    assert after.startswith(f"{source}:")
    assert after.endswith(f" > {SERVER}:{PORT}")
