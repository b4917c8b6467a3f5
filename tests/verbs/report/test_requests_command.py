# SPDX-License-Identifier: Apache-2.0
"""Requests of real recordings: as many as were asked, and the cause of their slowness is who held them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from hopscope.lab import Lab, Tbf, shape
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.command import hopscope, only

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

REQUESTS, REQUEST_BYTES, ANSWER_BYTES = 23, 331, 1009

# A client asks over lo; the server sleeps before each fifth answer, the client before each seventh read. They say how
# long by their own clock, and how long each request took the client from its send to the end of its read.
TRAFFIC = f"""
import json, socket, threading, time

def whole(connection, size):
    while size:
        size -= len(connection.recv(size))

def sleep(seconds):
    before_ns = time.monotonic_ns()
    time.sleep(seconds)
    return time.monotonic_ns() - before_ns

listener = socket.create_server(("127.0.0.1", 0))
server_slept, client_slept, took = {{}}, {{}}, []

def serve():
    connection, _ = listener.accept()
    for number in range({REQUESTS}):
        whole(connection, {REQUEST_BYTES})
        if number % 5 == 0:
            server_slept[number] = sleep(0.2)
        connection.sendall(bytes({ANSWER_BYTES}))
    connection.close()

server = threading.Thread(target=serve)
server.start()
with socket.create_connection(listener.getsockname()) as client:
    for number in range({REQUESTS}):
        before_ns = time.monotonic_ns()
        client.sendall(bytes({REQUEST_BYTES}))
        if number % 7 == 1:
            client_slept[number] = sleep(0.5)
        whole(client, {ANSWER_BYTES})
        took.append(time.monotonic_ns() - before_ns)
server.join()
print("said", json.dumps([listener.getsockname()[1], server_slept, client_slept, took]))
"""


class Said(NamedTuple):
    """What client and server said of themselves: times in ns, by number of the request."""

    port: int
    server_slept: dict[int, int]
    client_slept: dict[int, int]
    took: list[int]


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, Said]:
    folder = tmp_path / "trace"
    done = hopscope("record", "-o", folder, "-P", "messages", "--", sys.executable, "-c", TRAFFIC)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stderr + done.stdout
    (said,) = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("said ")]
    port, *slept, took = json.loads(said)
    return folder, Said(port, *({int(number): ns for number, ns in each.items()} for each in slept), took)


@pytest.mark.slow
def test_who_sleeps_is_to_blame(recorded: tuple[Path, Said]) -> None:
    folder, said = recorded
    done = hopscope("report", "requests", "--json", "--port", said.port, folder)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    rows.sort(key=lambda row: row["begin_ns"])
    assert len(rows) == REQUESTS
    assert {(row["request_bytes"], row["answer_bytes"]) for row in rows} == {(REQUEST_BYTES, ANSWER_BYTES)}
    assert all(row["total_ns"] == row["request_ns"] + row["server_ns"] + row["answer_ns"] for row in rows)
    assert all(row["total_ns"] <= took_ns for row, took_ns in zip(rows, said.took, strict=True))
    assert all(rows[number]["server_ns"] >= slept_ns for number, slept_ns in said.server_slept.items())
    assert all(rows[number]["total_ns"] >= slept_ns for number, slept_ns in said.client_slept.items())
    # Whom the machine held up for long, that is to blame for; of the others there are some.
    by_server = {number for number, ns in said.server_slept.items() if said.took[number] - ns < ns / 2}
    # What the client slept may be in three causes of the answer, the largest of which is longer than all else.
    by_client = {number for number, ns in said.client_slept.items() if said.took[number] - ns < ns / 10}
    by_client -= said.server_slept.keys()
    assert by_server
    assert by_client
    for number in by_server:
        assert rows[number]["blame"] == "application"
        assert rows[number]["blame_ns"] >= said.server_slept[number]
    for number in by_client:
        # It was awake, with something else to do, or asleep for another reason.
        assert rows[number]["blame"] in {"answer: reader-asleep", "answer: reader-runnable", "answer: reader-running"}
    assert "not paired" not in done.stderr
    shown = hopscope("report", "requests", "--port", said.port, folder).stdout
    assert shown.startswith(f"{REQUESTS} answered requests; share of the time: ")


# Before each answer the server fills the queue of its device: the answer is sent behind that, wherever the machine is
# late before. The server says how long it took to queue them, the client how long each request took.
AHEAD_BYTES, RATE_BIT_S, BURST_BYTES = 1_400, 64_000, 1_600
QUEUED_BYTES = 2 * (AHEAD_BYTES + 42) + ANSWER_BYTES + 66
_SHARED = """
import json, socket, sys, time

def whole(connection, size):
    while size:
        size -= len(connection.recv(size))

took = []
"""
FILLING_SERVER = f"""{_SHARED}
junk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
with socket.create_server(("{SERVER_IPV4}", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    with listener.accept()[0] as connection:
        for _ in range({REQUESTS}):
            whole(connection, {REQUEST_BYTES})
            before_ns = time.monotonic_ns()
            for _ in range(2):
                junk.sendto(bytes({AHEAD_BYTES}), ("{CLIENT_IPV4}", 9))
            connection.sendall(bytes({ANSWER_BYTES}))
            took.append(time.monotonic_ns() - before_ns)
print(json.dumps(took))
"""
CLIENT = f"""{_SHARED}
with socket.create_connection(("{SERVER_IPV4}", int(sys.argv[1]))) as connection:
    for _ in range({REQUESTS}):
        before_ns = time.monotonic_ns()
        connection.sendall(bytes({REQUEST_BYTES}))
        whole(connection, {ANSWER_BYTES})
        took.append(time.monotonic_ns() - before_ns)
print(json.dumps(took))
"""


@pytest.mark.slow
def test_a_slow_device_of_the_server_is_to_blame(tmp_path: Path) -> None:
    python = (sys.executable, "-c")
    with (
        Lab() as kept_lab,
        kept_lab.server.popen([*python, FILLING_SERVER], stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        shape(kept_lab.server, "server0", Tbf(RATE_BIT_S, burst_bytes=BURST_BYTES))
        client = ("nsenter", "-t", kept_lab.client.pid, "-n", *python, CLIENT, port)
        done = hopscope("record", "-o", tmp_path / "trace", "-P", "messages", *only(kept_lab), "--", *client)
        assert done.returncode == 0, done.stderr
        queueing = json.loads(server.stdout.read())
    (took,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    shown = hopscope("report", "requests", "--json", "--port", port, tmp_path / "trace")
    rows = sorted(map(json.loads, shown.stdout.splitlines()), key=lambda row: row["begin_ns"])
    assert len(rows) == len(took) == len(queueing) == REQUESTS
    assert {row["answer_bytes"] for row in rows} == {ANSWER_BYTES}
    # The bucket is never fuller than its size, and what was queued together goes out at its rate.
    least_ns = (QUEUED_BYTES - BURST_BYTES) * 8 * 1_000_000_000 // RATE_BIT_S
    waited_ns = [least_ns * 99 // 100 - queueing_ns for queueing_ns in queueing]
    for row, least in zip(rows, waited_ns, strict=True):
        assert least < row["answer_ns"] < row["total_ns"]
    # Where the machine held it up for longer, that is to blame.
    slow = [number for number, least in enumerate(waited_ns) if took[number] < 2 * least]
    assert slow
    for number in slow:
        assert rows[number]["blame"] == "answer: queue-others"
        assert waited_ns[number] < rows[number]["blame_ns"] < rows[number]["answer_ns"]
