# SPDX-License-Identifier: Apache-2.0
"""``report calls`` of an echo server over io_uring, beside what the server itself was given."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.calls import calls
from tests.lab.command import hopscope
from tests.shared import first

SOURCE: Final = Path(__file__).parents[2] / "lab" / "uring_echo" / "echo.c"
FORBIDS: Final = Path("/proc/sys/kernel/io_uring_disabled")
CONNECTIONS: Final = 3
CLIENT: Final = """
import socket, subprocess, sys
with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as server:
    port = int(server.stdout.readline())
    for _ in range(int(sys.argv[2])):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for turn in range(5):
                left = connection.send(bytes(1 + 100 * turn))
                while left:
                    left -= len(connection.recv(left))
    print(server.pid)
    print(port)
    print(server.stdout.read())
"""
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not Path("/usr/include/liburing.h").exists() or not shutil.which("cc"),
        reason="liburing-dev or cc is not installed",
    ),
    pytest.mark.skipif(FORBIDS.exists() and FORBIDS.read_text() != "0\n", reason="the kernel forbids io_uring"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("uring") / "echo"
    subprocess.run(["cc", "-o", program, SOURCE, "-luring"], check=True)
    return program


@pytest.mark.parametrize("by_workers", first([False, True]))
def test_requests_are_those_that_the_server_was_given(tmp_path: Path, server: Path, *, by_workers: bool) -> None:
    folder = tmp_path / "trace"
    program = (server, CONNECTIONS, *(("workers",) if by_workers else ()))
    done = hopscope("record", "-P", "calls", "-o", folder, "--", sys.executable, "-c", CLIENT, *program)
    assert done.returncode == 0, done.stderr
    pid, port, *told = done.stdout.split()
    given = Counter(zip(told[::2], map(int, told[1::2]), strict=True))
    with Trace(folder) as trace:
        report = calls(trace, Selection(processes=(pid,)))
        counted = trace.rows(
            "SELECT p.name, count(DISTINCT s.seq) FROM sockets s JOIN points p ON p.point = s.point"
            " WHERE p.name LIKE 'uring.%' GROUP BY p.name"
        )
    names = ("call", "result", "fd", "duration_ns", "flow_name")
    rows = [row for row in zip(*map(report.column, names), strict=True) if row[0].startswith("uring ")]
    assert Counter((name.removeprefix("uring "), result) for name, result, *_ in rows) == given
    assert len(rows) == CONNECTIONS * (1 + 6 + 5)
    assert all(took > 0 for *_, took, _ in rows)
    # One that receives is of the flow to the server, one that sends of the flow from it.
    ours = f"127.0.0.1:{port}"
    ends = {(name, *((flow or "").split(" > ").index(ours),)) for name, _, _, _, flow in rows if "accept" not in name}
    assert ends == {("uring recv", 1), ("uring send", 0)}
    # A worker that finds nothing to receive gives a request back, and it is given to one again.
    of_workers = {"uring.work": CONNECTIONS * 11} if by_workers else {}
    assert dict(counted) == {"uring.submit": len(rows), "uring.complete": len(rows), **of_workers}
