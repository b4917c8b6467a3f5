# SPDX-License-Identifier: Apache-2.0
"""The example as a user runs it: without any right."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
TIMEOUT_S = 30.0
STAGES = ("stack", "queue", "reply", "read", "total", "send call", "ack")


def argv(*args: object) -> list[str]:
    """Return the command line, as a user without rights."""
    if os.geteuid() == 0:
        before = [*NOBODY, "--no-new-privs"]
        readable = subprocess.run([*before, sys.executable, "-c", "import hopscope"], capture_output=True, check=False)
        if readable.returncode:
            pytest.skip(f"user 65534 cannot read {ROOT} or {sys.executable}")
    else:
        before = []
    return [*before, sys.executable, "-B", str(ROOT / "examples" / "ping_tcp.py"), *map(str, args)]


@contextlib.contextmanager
def server(host: str) -> Iterator[tuple[int, int]]:
    """Yield the port and the pid of an echo server."""
    with subprocess.Popen(argv("--serve", f"{host}:0"), stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline().removeprefix("echo on port ")), child.pid
        finally:
            child.send_signal(signal.SIGINT)
        assert child.wait(TIMEOUT_S) == 130


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(*args), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def figures(output: str) -> dict[str, list[float]]:
    rows = re.findall(r"^(.{10})\s*([\d.]+) +([\d.]+) +([\d.]+)  ", output, re.MULTILINE)
    return {name.strip(): [float(value) for value in values] for name, *values in rows}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_every_stage_of_every_request_is_shown_without_any_right(host: str) -> None:
    with server(host) as (port, pid):
        status = Path(f"/proc/{pid}/status").read_text()
        assert os.geteuid() != 0 or re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        done = run(f"{host}:{port}", "-n", 20, "--interval", 0.001)
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 requests\n" in done.stdout
    rows = figures(done.stdout)
    assert tuple(rows) == STAGES
    assert all(0 <= low <= middle <= high for low, middle, high in rows.values())
    # What adds up for each request bounds what is shown of all.
    chain = [rows[name] for name in STAGES[:4]]
    assert sum(low for low, _, _ in chain) <= rows["total"][0] + 0.5
    assert rows["total"][2] <= sum(high for _, _, high in chain) + 0.5


def test_server_that_takes_its_time_is_seen_in_the_reply() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = argv(f"127.0.0.1:{listener.getsockname()[1]}", "-n", 3, "--size", 10)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            connection, _ = listener.accept()
            with connection:
                for _ in range(3):
                    data = connection.recv(10)
                    subprocess.run(["sleep", "0.05"], check=True)
                    connection.sendall(data)
                output, _ = child.communicate(timeout=TIMEOUT_S)
    rows = figures(output)
    assert rows["reply"][0] >= 50_000
    assert rows["ack"][0] < rows["reply"][0]
    assert rows["read"][0] < 50_000


def test_server_that_is_not_there_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = run(f"127.0.0.1:{free.getsockname()[1]}")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"ping_tcp: .*refused\n", done.stderr)


def test_server_that_closes_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = argv(f"127.0.0.1:{listener.getsockname()[1]}")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()
            _, said = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, said) == (1, "ping_tcp: the server closed the connection\n")


def test_nothing_to_send_is_refused() -> None:
    done = run("127.0.0.1:9", "-n", 0)
    assert done.returncode == 2
    assert done.stderr.startswith("ping_tcp: There is nothing to send.")
