# SPDX-License-Identifier: Apache-2.0
"""`mark` writes into a running recording, at its place between packets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.gate import REPLACEMENT
from hopscope.live.recorder.marks import MARKS, MOST_BYTES, Marks
from tests.lab.command import complaint, hopscope
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root
TEXT: Final = "between; \x1b[31m'two' \"datagrams\"\n2"
# Sends a datagram, marks with the words that it was given, sends another one of another length.
PROGRAM: Final = """
import socket, subprocess, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
for len_bytes in (101, 202):
    receiver.sendto(bytes(len_bytes), receiver.getsockname())
    receiver.recv(300)
    if len_bytes == 101:
        subprocess.run(sys.argv[1:], check=True)
print(receiver.getsockname()[1])
"""

# Marks as another user would, and expects no answer.
STRANGER: Final = """
import os, socket, sys, time
os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect("\\0" + sys.argv[1])
    try:
        connection.send(time.monotonic_ns().to_bytes(8, sys.byteorder) + bytes(2) + b"not mine")
        sys.exit(len(connection.recv(10)))
    except (BrokenPipeError, ConnectionResetError):
        pass
"""


def test_a_mark_is_between_the_packets_that_it_was_between(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    marks = (sys.executable, "-m", "hopscope", "mark", TEXT)
    done = hopscope("record", "-o", folder, "--", sys.executable, "-c", PROGRAM, *marks)
    assert done.returncode == 0, done.stderr
    port = done.stdout.split()[0]
    report = hopscope("report", "events", "--json", folder)
    events = [json.loads(line) for line in report.stdout.splitlines()]
    sent = [event["len_bytes"] for event in events if event["point"] == "tx.sent" and f":{port}" in event["flow_name"]]
    assert sent == [101, 202]
    (at,) = [number for number, event in enumerate(events) if event["point"] == MARKS.name]
    around = [event for event in events if event["point"] == "tx.sent" and f":{port}" in event["flow_name"]]
    assert around[0]["time_ns"] < events[at]["time_ns"] < around[1]["time_ns"]
    assert events.index(around[0]) < at < events.index(around[1])
    kept = hopscope("sql", "--json", folder, f"SELECT text, tid FROM {MARKS.name}")
    assert json.loads(kept.stdout)["text"] == TEXT
    (line,) = [line for line in hopscope("report", "events", folder).stdout.splitlines() if MARKS.name in line]
    assert line.endswith(f"text {TEXT}".replace("\x1b", REPLACEMENT).replace("\n", REPLACEMENT))


def test_what_cannot_be_marked_is_said() -> None:
    assert "1 to 1024 bytes, and this one 0" in complaint(hopscope("mark", ""), 2)
    assert f"and this one {MOST_BYTES + 2}" in complaint(hopscope("mark", "é" * (MOST_BYTES // 2 + 1)), 2)


def test_a_recorder_takes_no_marks_of_other_users_and_other_times() -> None:
    with Marks() as marks:
        address = marks.address
        stranger = subprocess.Popen([sys.executable, "-c", STRANGER, address[1:]])
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as early,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as short,
        ):
            for each, message in ((early, bytes(10) + b"before"), (short, b"x")):
                each.connect(address)
                each.send(message)

            def refused() -> bool:
                assert not len(marks.read(1)["text"])
                return stranger.poll() is not None

            eventually(refused)
            assert stranger.returncode == 0
            assert early.recv(10) == b"refused"
            assert short.recv(10) == b""
