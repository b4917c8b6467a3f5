# SPDX-License-Identifier: Apache-2.0
"""Messages of a real recording: as many as were sent, each followed to the call that read it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.command import hopscope

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

MESSAGES, LEN_BYTES = 23, 1009
DATAGRAMS, DATAGRAM_BYTES = 1009, 331
LARGE, LARGE_BYTES = 7, 3_000_017

# Threads send and read; the ports are printed.
TRAFFIC = f"""
import socket, threading, time

def read(make):
    thread = threading.Thread(target=make)
    thread.start()
    return thread

def stream(count, size, pause):
    listener = socket.create_server(("127.0.0.1", 0))
    def drain():
        connection, _ = listener.accept()
        while connection.recv(65536):
            pass
    reader = read(drain)
    with socket.create_connection(listener.getsockname()) as client:
        for _ in range(count):
            client.sendall(bytes(size))
            time.sleep(pause)
    reader.join()
    return listener.getsockname()[1]

def datagrams(count, size):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    for number in range(count):
        reader = read(lambda: server.recv(65536)) if number % 100 == 0 else None
        client.send(bytes(size))
        reader.join() if reader else server.recv(65536)
    return server.getsockname()[1]

small = stream({MESSAGES}, {LEN_BYTES}, 0.002)
print(small, datagrams({DATAGRAMS}, {DATAGRAM_BYTES}), stream({LARGE}, {LARGE_BYTES}, 0))
"""


# With a filter, headers are looked at everywhere.
@pytest.fixture(scope="module", params=[(), ("--address", "127.0.0.0/8")], ids=["all", "filtered"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    options = ("-o", folder, "-P", "messages", "--point", "call.enter", *request.param)
    done = hopscope("record", *options, "--", sys.executable, "-c", TRAFFIC)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stderr + done.stdout
    ports = next(line.split() for line in done.stdout.splitlines() if len(line.split()) == 3 and line[0].isdigit())
    return folder, ports


@pytest.mark.parametrize(
    ("place", "count", "len_bytes"), [(0, MESSAGES, LEN_BYTES), (1, DATAGRAMS, DATAGRAM_BYTES), (2, LARGE, LARGE_BYTES)]
)
def test_all_messages_are_followed_to_their_read(
    recorded: tuple[Path, list[str]], place: int, count: int, len_bytes: int
) -> None:
    folder, ports = recorded
    done = hopscope("report", "messages", "--json", "--port", ports[place], folder)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == count
    assert {row["len_bytes"] for row in rows} == {len_bytes}
    assert {row["until"] for row in rows} == {"rx.received"}
    for row in rows:
        points = [
            name
            for name in row
            if name.endswith("_ns")
            and not name.startswith("held_")
            and name not in {"begin_ns", "total_ns", "blame_ns", "resent_ns"}
        ]
        times = [row[name] for name in points if row[name] is not None]
        assert times == sorted(set(times))
        assert row["call_enter_ns"] == 0
        seen = ("tx_queue_ns", "tx_start_ns", "rx_driver_ns", "rx_core_ns", "rx_l4_ns", "rx_ready_ns")
        assert None not in {row[name] for name in seen}
