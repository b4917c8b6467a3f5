# SPDX-License-Identifier: Apache-2.0
"""Real recordings of hosts that are not alike: the same addresses inside of them, IPv6 alone, samples of flows."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import SERVER_IPV4, SERVER_IPV6
from hopscope.store.trace import Trace
from tests.lab.apart import ASKED, JOINED, MESSAGES, PORT, recorded_apart, talk
from tests.lab.command import hopscope
from tests.lab.recorded_hosts import finished, pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root

OWN_PORT = 40000
FLOWS = 61


@pytest.fixture
def kept_lab() -> Iterator[Lab]:
    with Lab() as kept_lab:
        yield kept_lab


def report(name: str, folder: Path) -> list[dict[str, Any]]:
    done = hopscope("report", name, "--json", folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_same_addresses_inside_of_two_hosts_are_not_mixed_up(kept_lab: Lab, tmp_path: Path) -> None:
    with Lab() as one, Lab() as other:
        hosts = {"a": [kept_lab.client, one.client, one.server], "b": [kept_lab.server, other.client, other.server]}
        with recorded_apart(tmp_path, hosts, together=False), ThreadPoolExecutor() as workers:
            for each in [
                workers.submit(talk, within.client, within.server, SERVER_IPV4, own_port=OWN_PORT)
                for within in (one, other)
            ]:
                each.result()
            # From another port: on either host, flows of one name are one flow.
            talk(kept_lab.client, kept_lab.server, SERVER_IPV4, own_port=OWN_PORT + 1)
    messages = report("messages", tmp_path / JOINED)
    between = [row for row in messages if f":{OWN_PORT + 1}" in row["flow_name"]]
    inside = [row for row in messages if f":{OWN_PORT} " in f"{row['flow_name']} "]
    assert {row["until"] for row in messages} == {"rx.received"}
    assert all({row["sender_host"], row["receiver_host"]} == {"a", "b"} for row in between)
    assert all(row["sender_host"] == row["receiver_host"] and row["network_bound_ns"] is None for row in inside)
    assert len(inside) == 2 * len(between) == 8 * MESSAGES + 2
    assert len({row["flow"] for row in inside}) == 8
    requests = report("requests", tmp_path / JOINED)
    assert len(requests) == 6 * MESSAGES
    assert {row["request_bytes"] for row in requests} == {ASKED}
    network = report("network", tmp_path / JOINED)
    assert {(row["lost"], row["unsure"]) for row in network} == {(0, 0)}
    assert all(f":{OWN_PORT + 1}" in row["flow_name"] for row in network if row["flow"] is not None)


def test_datagrams_of_ipv6_alone_compare_clocks(kept_lab: Lab, tmp_path: Path) -> None:
    with recorded_apart(
        tmp_path, {"a": kept_lab.client, "b": kept_lab.server}, together=False, options=("--pcap", "udp")
    ):
        talk(kept_lab.client, kept_lab.server, SERVER_IPV6)
    with Trace(tmp_path / JOINED) as trace:
        assert trace.rows("SELECT DISTINCT protocol FROM flows WHERE protocol IN (6, 17)") == [(17,)]
        (compared,) = trace.metadata.joined["pairs"]
        assert compared["probes"] == (0, 0)
        # Nothing was lost, and all requests differ: all but the first are told apart. Answers begin as requests do.
        assert compared["packets"] == (MESSAGES - 1, MESSAGES - 1)
        bounds = trace.columns("SELECT low_ns, high_ns FROM clocks WHERE host = 1")
        assert (np.asarray(bounds["low_ns"]) <= 0).all()
        assert (np.asarray(bounds["high_ns"]) >= 0).all()


ECHO = f"""
import socket
listener = socket.create_server(("", {PORT}), backlog={FLOWS})
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(("", {PORT}))
print("ready", flush=True)
for _ in range({FLOWS}):
    connection, _ = listener.accept()
    connection.sendall(connection.recv(2048))
    data, client = receiver.recvfrom(2048)
    receiver.sendto(data, client)
    connection.recv(1)
"""
ASKING = f"""
import socket
for _ in range({FLOWS}):
    with socket.create_connection(("{SERVER_IPV4}", {PORT})) as stream, socket.socket(type=socket.SOCK_DGRAM) as sender:
        stream.sendall(bytes(1009))
        stream.recv(2048)
        sender.connect(("{SERVER_IPV4}", {PORT}))
        sender.send(bytes(331))
        sender.recv(2048)
"""


def test_a_sample_has_the_same_flows_on_all_hosts(tmp_path: Path) -> None:
    with pair(tmp_path) as hosts:
        child = hosts.begun(tmp_path / "r", "-P", "messages", "--sample", 3, "-d", 4)
        python = (sys.executable, "-c")
        with hosts.lab.server.popen([*python, ECHO], stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            assert serving.stdout.readline() == "ready\n"
            hosts.lab.client.run([*python, ASKING], check=True)
            assert serving.wait() == 0
        code, said = finished(child)
        assert code == 0, said
    seen = []
    for host in "ab":
        with Trace(tmp_path / "r" / host) as trace:
            rows = trace.rows(
                "SELECT DISTINCT protocol, flow FROM packets JOIN flows USING (flow)"
                f" WHERE source_port = {PORT} OR destination_port = {PORT}"
            )
            seen.append(set(rows))
    assert seen[0] == seen[1]
    for protocol in (6, 17):
        assert 2 * FLOWS * 0.1 < sum(each == protocol for each, _ in seen[0]) < 2 * FLOWS * 0.7
    network = report("network", tmp_path / "r")
    assert {(row["lost"], row["unsure"]) for row in network} == {(0, 0)}
    listed = {int(row["flow"]) for row in network if row["flow"] is not None}
    assert listed == {flow for _, flow in seen[0]}
    messages = report("messages", tmp_path / "r")
    assert {row["until"] for row in messages} == {"rx.received"}
    assert {int(row["flow"]) for row in messages} == listed
    assert len(report("requests", tmp_path / "r")) == len(listed) // 2
