# SPDX-License-Identifier: Apache-2.0
"""Threads that migrate, are killed or come by the thousand in mid-call; starts, stops and sudden ends in traffic."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Workload
from tests.lab.measure import assert_killed_leaves_nothing, in_thread, udp_pair
from tests.lab.uring import SEND, Uring
from tests.verbs.cpu.measure import assert_sane, calls, of_process, run
from tests.verbs.cpu.test_softirq import exchange
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.verbs.cpu.collector import CpuCollector
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root

COUNT = 23
SIZE = 100
HOLDER = """
import time
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
with CpuCollector(CpuOptions(hz=100)):
    print("attached", flush=True)
    time.sleep(60)
"""
RECEIVER = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    sock.recv(100)
"""


def remembered(cpu: CpuCollector) -> set[int]:
    """Return the threads that have a place in the kernel side's table."""
    numbers, _ = cpu._session.bpf.maps["tasks"].items()
    return {int(number) for number in numbers}


def waits(pid: int, thread: int) -> bool:
    """Tell whether a thread sleeps in a call."""
    return Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextlib.contextmanager
def receiving(receiver: socket.socket, times: int) -> Iterator[int]:
    """Receive so often in a thread; yield its number."""
    numbers: list[int] = []

    def receive() -> None:
        numbers.append(threading.get_native_id())
        for _ in range(times):
            receiver.recv(SIZE)

    with in_thread(receive):
        eventually(lambda: bool(numbers))
        yield numbers[0]


def test_a_thread_that_migrates_in_mid_call(veth: NetworkPath) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two CPUs")
    with udp_pair(veth) as (sender, receiver), run() as cpu:
        cpu.interval()
        with receiving(receiver, COUNT) as thread:
            for number in range(COUNT):
                os.sched_setaffinity(thread, {allowed[number % 2]})
                eventually(lambda: waits(os.getpid(), thread))
                os.sched_setaffinity(thread, {allowed[(number + 1) % 2]})
                time.sleep(0.01)
                sender.send(bytes(SIZE))
        snapshot = cpu.interval()
    parts = of_process(snapshot)
    assert calls(parts, "send", "receive") == [(COUNT, COUNT * SIZE)] * 2
    assert 0 < parts["receive"].ns < COUNT * 5_000_000
    assert_sane(snapshot)
    assert snapshot.notes == []


def test_a_process_that_is_killed_in_mid_call() -> None:
    with run() as cpu:
        for _ in range(5):
            with subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                child.stdout.readline()
                eventually(lambda: waits(child.pid, child.pid))
                assert child.pid in remembered(cpu)
                child.kill()
            snapshot = cpu.interval()
            # The call ends, without a datagram.
            assert calls(of_process(snapshot, child.pid), "receive") == [(1, 0)]
            assert_sane(snapshot)
            assert child.pid not in remembered(cpu)


def test_a_process_that_is_killed_while_it_sends(veth: NetworkPath) -> None:
    with udp_pair(veth) as (_, receiver), run() as cpu:
        for _ in range(5):
            with Workload(veth.sender, "udp-send", veth.host, receiver.getsockname()[1]) as flood:
                eventually(lambda: of_process(cpu.interval(), flood.pid)["send"].runs > 0)
            snapshot = cpu.interval()
            assert_sane(snapshot)
            assert flood.pid not in remembered(cpu)
            cpu.interval()
            assert of_process(cpu.interval(), flood.pid)["send"].ns == 0


@pytest.mark.slow
def test_ten_thousand_threads_leave_nothing(veth: NetworkPath) -> None:
    threads, at_once = 10_000, 50
    with udp_pair(veth) as (_, receiver), run() as cpu:
        receiver.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
        )
        numbers: set[int] = set()

        def receive() -> None:
            numbers.add(threading.get_native_id())
            with contextlib.suppress(BlockingIOError):
                receiver.recv(SIZE)

        cpu.interval()
        for _ in range(threads // at_once):
            group = [threading.Thread(target=receive) for _ in range(at_once)]
            for thread in group:
                thread.start()
            for thread in group:
                thread.join()
        snapshot = cpu.interval()
        assert len(numbers) > threads * 0.9
        gone = {number for number in numbers if not Path(f"/proc/self/task/{number}").exists()}
        eventually(lambda: not remembered(cpu) & gone)
        assert not remembered(cpu) & gone
    assert calls(of_process(snapshot), "receive") == [(threads, 0)]
    assert_sane(snapshot)
    assert snapshot.notes == []


def test_workers_of_io_uring_leave_nothing(veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, _), run() as cpu:
        before = remembered(cpu)
        for _ in range(20):
            try:
                ring = Uring()
            except OSError as error:
                pytest.skip(f"io_uring cannot be had: {error}")
            with ring:
                for _ in range(5):
                    ring.submit(SEND, sender, SIZE, by_worker=True)
                    ring.result()

        def gone() -> set[int]:
            new = remembered(cpu) - before
            return {number for number in new if not list(Path("/proc").glob(f"{number}/stat")) and not alive(number)}

        eventually(lambda: not gone())


def alive(thread: int) -> bool:
    try:
        os.kill(thread, 0)
    except ProcessLookupError:
        return False
    return True


def test_starts_and_stops_in_the_midst_of_traffic(veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver):
        stop, rounds = threading.Event(), [0]

        def flood() -> None:
            while not stop.is_set():
                exchange(sender, receiver, 20)
                rounds[0] += 1

        with in_thread(flood):
            for _ in range(5):
                with run("cpu") as cpu:
                    before = rounds[0]
                    eventually(lambda before=before: rounds[0] > before + 1)
                    snapshot = cpu.interval()
                assert snapshot.total.parts["send"].runs >= 20
                assert_sane(snapshot)
            stop.set()


def test_a_call_from_before_the_start_is_not_counted(veth: NetworkPath) -> None:
    with udp_pair(veth) as (sender, receiver), receiving(receiver, 2) as thread:
        eventually(lambda: waits(os.getpid(), thread))
        with run() as cpu:
            sender.send(bytes(SIZE))
            eventually(lambda: thread in remembered(cpu))
            sender.send(bytes(SIZE))
            eventually(lambda: not Path(f"/proc/self/task/{thread}").exists())
            snapshot = cpu.interval()
    assert calls(of_process(snapshot), "send", "receive") == [(2, 2 * SIZE), (1, SIZE)]
    assert snapshot.notes == []


def test_two_at_once_agree(veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run() as first, run() as second:
        exchange(*flow, 500)
        found = [of_process(cpu.interval()) for cpu in (first, second)]
    for name in ("send", "receive"):
        one, other = (parts[name] for parts in found)
        assert (one.runs, one.len_bytes) == (other.runs, other.len_bytes) == (500, 500 * SIZE)
        # The programs of the one are in the other's time.
        assert 0.4 < one.ns / other.ns < 2.5


def test_a_killed_run_leaves_nothing_attached() -> None:
    assert_killed_leaves_nothing(HOLDER)
