# SPDX-License-Identifier: Apache-2.0
"""Requests of real recordings: as many as were asked, and the cause of their slowness is who held them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.command import hopscope
from hopscope.lab import Lab, Tbf, Workload, shape

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

REQUESTS, REQUEST_BYTES, ANSWER_BYTES = 23, 331, 1009

# A client asks over lo; the server sleeps 20 ms before each fifth answer, the client before each seventh read.
TRAFFIC = f"""
import socket, threading, time

def whole(connection, size):
    while size:
        size -= len(connection.recv(size))

listener = socket.create_server(("127.0.0.1", 0))

def serve():
    connection, _ = listener.accept()
    for number in range({REQUESTS}):
        whole(connection, {REQUEST_BYTES})
        if number % 5 == 0:
            time.sleep(0.020)
        connection.sendall(bytes({ANSWER_BYTES}))
    connection.close()

server = threading.Thread(target=serve)
server.start()
with socket.create_connection(listener.getsockname()) as client:
    for number in range({REQUESTS}):
        client.sendall(bytes({REQUEST_BYTES}))
        if number % 7 == 1:
            time.sleep(0.030)
        whole(client, {ANSWER_BYTES})
        time.sleep(0.001)
server.join()
print("port", listener.getsockname()[1])
"""


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "trace"
    done = hopscope("record", "-o", folder, "-P", "messages", "--", sys.executable, "-c", TRAFFIC)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stderr + done.stdout
    return folder, next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("port "))


def test_who_sleeps_is_to_blame(recorded: tuple[Path, str]) -> None:
    folder, port = recorded
    done = hopscope("report", "requests", "--json", "--port", port, folder)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    rows.sort(key=lambda row: row["begin_ns"])
    assert len(rows) == REQUESTS
    assert {(row["request_bytes"], row["answer_bytes"]) for row in rows} == {(REQUEST_BYTES, ANSWER_BYTES)}
    assert all(row["total_ns"] == row["request_ns"] + row["server_ns"] + row["answer_ns"] for row in rows)
    slept = {number for number, row in enumerate(rows) if row["server_ns"] >= 20_000_000}
    assert slept >= {number for number in range(REQUESTS) if number % 5 == 0}
    for number, row in enumerate(rows):
        if number % 5 == 0 and number % 7 != 1:
            assert row["blame"] == "server"
            assert row["blame_ns"] >= 20_000_000
        if number % 7 == 1 and number % 5:
            assert row["answer_ns"] >= 29_000_000
            # It was awake, with something else to do, or asleep for another reason.
            assert row["blame"] in {"answer: socket queue", "answer: wake-up", "answer: reader"}
    assert "not paired" not in done.stderr
    shown = hopscope("report", "requests", "--port", port, folder).stdout
    assert shown.startswith(f"{REQUESTS} answered requests; of their time held by: ")


def test_a_slow_device_of_the_server_is_to_blame(tmp_path: Path) -> None:
    # An answer of 1,000 bytes is one packet, and takes 8 ms at 1 Mbit/s; the first goes into the bucket's burst.
    sizes = ("--size", 97, "--reply-size", 1_000, "--count", 11)
    with Lab() as lab, Workload(lab.server, "tcp-echo", "--bind", "10.77.0.2", *sizes) as server:
        shape(lab.server, "server0", Tbf(1_000_000, burst_bytes=1600))
        client = ("nsenter", "-t", lab.client.pid, "-n", sys.executable, "-m", "hopscope.lab.traffic", "tcp-rr")
        command = (*client, "10.77.0.2", server.port, *sizes)
        done = hopscope("record", "-o", tmp_path / "trace", "-P", "messages", "--", *command)
        assert done.returncode == 0, done.stderr
    shown = hopscope("report", "requests", "--json", "--port", server.port, tmp_path / "trace")
    rows = sorted(map(json.loads, shown.stdout.splitlines()), key=lambda row: row["begin_ns"])
    assert len(rows) == 11
    # Where the machine is late, the bucket is full again, or somebody else is to blame.
    slow = [row for row in rows if row["blame"] == "answer: qdisc"]
    assert len(slow) > 5
    for row in slow:
        assert row["answer_bytes"] == 1_000
        assert 1_000_000 < row["blame_ns"] < row["answer_ns"] < row["total_ns"]
