# SPDX-License-Identifier: Apache-2.0
"""What a thread does, by the scheduler's events and its calls, beside its own clock of CPU time."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from bench.causes import recorded
from hopscope.store.trace import Trace
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

_BYTES: Final = 64 << 20
_AT_ONCE: Final = 4 << 20
# Before it copies its first bytes, a call takes the lock of the socket, waits for data and is woken up.
_LEAST: Final = 0.6


class Calls(NamedTuple):
    """Time in calls that receive: on a CPU (without softirqs, if the kernel tells them apart), and by the clock."""

    cpu_ns: int
    wall_ns: int


def send(sock: socket.socket) -> None:
    part = bytes(1 << 16)
    for _ in range(_BYTES // len(part)):
        sock.sendall(part)


def receive(sock: socket.socket) -> Calls:
    """Read all of it, and compute for as long in between."""
    buffer, cpu_ns, wall_ns = bytearray(_AT_ONCE), 0, 0
    for _ in range(_BYTES // _AT_ONCE):
        cpu_before_ns, before_ns = time.thread_time_ns(), time.monotonic_ns()
        assert sock.recv_into(buffer, _AT_ONCE, socket.MSG_WAITALL) == _AT_ONCE
        cpu_ns += time.thread_time_ns() - cpu_before_ns
        took_ns = time.monotonic_ns() - before_ns
        wall_ns += took_ns
        while time.monotonic_ns() - before_ns < 2 * took_ns:
            pass
    return Calls(cpu_ns, wall_ns)


def test_a_thread_reads_as_long_as_its_calls_copy(tmp_path: Path) -> None:
    with recorded(tmp_path / "trace", ("--address", "127.0.0.1")), socket.create_server(("127.0.0.1", 0)) as listens:
        client = socket.create_connection(listens.getsockname())
        server, _ = listens.accept()
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        calls = receive(server)
        sender.join()
        client.close()
        server.close()
    with Trace(tmp_path / "trace") as trace:
        build(trace, "thread_states")
        ((reading_ns,),) = trace.rows(
            "SELECT sum(next_ns - time_ns) FROM (SELECT *, lead(time_ns) OVER (ORDER BY time_ns, place) AS next_ns"
            f" FROM thread_states WHERE subject = {threading.get_native_id()}) s WHERE state = 'reading'"
        )
    assert _LEAST * calls.cpu_ns < reading_ns < calls.wall_ns, (calls, reading_ns)
