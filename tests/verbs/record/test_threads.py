# SPDX-License-Identifier: Apache-2.0
"""Whose events these are: numbers of threads with their names, also when one is renamed or its number used again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import NetworkPath, in_thread, ping, udp_pair, way

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.verbs.record.measure import Rows, Seen

pytestmark = pytest.mark.root

COMM = Path("/proc/thread-self/comm")


@pytest.fixture
def veth(kept_lab: Lab) -> NetworkPath:
    return way(kept_lab, "veth-4")


def names(seen: Seen, rows: Rows) -> list[tuple[int, str]]:
    """Return process and name of the thread of each event, in their order."""
    rows = rows.by_time()
    return [seen.thread(tid, time_ns) for tid, time_ns in zip(rows["tid"], rows["time_ns"], strict=True)]


def test_the_threads_that_send_and_read(seen: Seen, veth: NetworkPath) -> None:
    tids = []

    def send() -> None:
        COMM.write_text("hop-sender")
        tids.append(threading.get_native_id())
        for _ in range(23):
            sender.send(b"x")

    with udp_pair(veth) as (sender, receiver):
        with in_thread(send):
            for _ in range(23):
                receiver.recv(10)
        seen.take()
    assert set(seen.at("tx.sent")["tid"]) == set(seen.at("tx.queue")["tid"]) == set(tids)
    assert set(names(seen, seen.at("tx.sent"))) == {(os.getpid(), "hop-sender")}
    assert set(seen.at("rx.received")["tid"]) == {threading.get_native_id()}
    assert {pid for pid, _ in names(seen, seen.at("rx.received"))} == {os.getpid()}
    # The reader slept at times: then it was woken, and the sleep is between two switches.
    woken = seen.at("sched.wake")
    assert set(woken["subject"]) <= {threading.get_native_id(), *tids}


def test_a_thread_that_renames_itself(seen: Seen, veth: NetworkPath) -> None:
    wanted = [f"hop-name-{number}" for number in range(23)]

    def send() -> None:
        for name in wanted:
            COMM.write_text(name)
            assert ping(sender, receiver, 3) == 3

    with udp_pair(veth) as (sender, receiver):
        with in_thread(send):
            pass
        seen.take()
    expected = [(os.getpid(), name) for name in wanted for _ in range(3)]
    for point in ("tx.queue", "tx.sent", "rx.received"):
        assert names(seen, seen.at(point)) == expected, point


def test_threads_that_rename_themselves_at_once(seen: Seen, veth: NetworkPath) -> None:
    """Each on a CPU of its own, with numbers that are neighbours."""
    rounds = 499
    begun = threading.Barrier(2)

    def send(number: int) -> None:
        os.sched_setaffinity(0, {cpus[number % len(cpus)]})
        sender, receiver = pairs[number]
        begun.wait()
        for turn in range(rounds):
            COMM.write_text(f"hop-{number}-{turn}")
            assert ping(sender, receiver, 1) == 1

    cpus = sorted(os.sched_getaffinity(0))
    with udp_pair(veth) as first, udp_pair(veth) as second:
        pairs = [first, second]
        with in_thread(lambda: send(0)), in_thread(lambda: send(1)):
            pass
        seen.take()
        flows = [seen.flow_of(sender) for sender, _ in pairs]
    for number, flow in enumerate(flows):
        assert [name for _, name in names(seen, seen.at("tx.sent", flow=flow))] == [
            f"hop-{number}-{turn}" for turn in range(rounds)
        ]


# Forks with a number of its choice, which was another's before.
FORKS = """
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
ADDRESS = (sys.argv[1], int(sys.argv[2]))

def child(name, tid):
    number = (ctypes.c_int * 1)(tid)
    args = (ctypes.c_uint64 * 11)()
    args[4] = signal.SIGCHLD
    if tid:
        args[8], args[9] = ctypes.addressof(number), 1
    pid = libc.syscall(435, args, 88)
    if pid:
        if pid < 0:
            print("refused", os.strerror(ctypes.get_errno()), flush=True)
            sys.exit()
        os.waitpid(pid, 0)
        return pid
    if name:
        open("/proc/self/comm", "w").write(name)
    sock = socket.create_connection(ADDRESS)
    for _ in range(7):
        sock.send(b"x")
    # The connection ends with the process, which sends as one that is gone already.
    os._exit(0)

open("/proc/self/comm", "w").write("hop-forks")
pid = child("hop-first", 0)
child("", pid)
print(pid, flush=True)
"""


def test_a_number_that_is_used_again(seen: Seen, veth: NetworkPath, kept_lab: Lab) -> None:
    with kept_lab.server.call(socket.create_server, (veth.host, 0)) as listener:
        argv = [sys.executable, "-c", FORKS, *map(str, listener.getsockname())]
        with kept_lab.client.popen(argv, stdout=subprocess.PIPE, text=True) as forks:
            out, _ = forks.communicate(timeout=20)
    if out.startswith("refused"):
        pytest.skip(f"a process cannot have a number of our choice here: {out}")
    pid = int(out)
    seen.take()
    assert names(seen, seen.at("tx.sent", tid=pid)) == [(pid, "hop-first")] * 7 + [(pid, "hop-forks")] * 7


def test_a_thread_has_its_process(seen: Seen, veth: NetworkPath) -> None:
    tids = []

    def send() -> None:
        tids.append(threading.get_native_id())
        assert ping(sender, receiver, 7) == 7

    with udp_pair(veth) as (sender, receiver):
        for _ in range(3):
            with in_thread(send):
                pass
        seen.take()
    for tid in tids:
        assert {pid for pid, _ in names(seen, seen.at("tx.sent", tid=tid))} == {os.getpid()}
