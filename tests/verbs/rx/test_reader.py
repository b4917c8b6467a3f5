# SPDX-License-Identifier: Apache-2.0
"""What the reader did while its data waited, against what the kernel itself says of the thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import MS, counts, discarded, histogram, run, tcp_pair, udp_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab
    from hopscope.model.snapshot import Snapshot
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root
MESSAGES = 7


@dataclass(frozen=True)
class Thread:
    """What this thread has had by now: time, time on CPUs, and time in which it waited for one."""

    wall_ns: int
    on_ns: int
    delay_ns: int

    @classmethod
    def now(cls) -> Thread:
        delay_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
        return cls(time.monotonic_ns(), time.thread_time_ns(), delay_ns)


@dataclass
class Bounds:
    """Of the time between the arrival and the read, which both are calls of this thread."""

    least: int = 0
    most: int = 0

    def add(self, name: str, times: tuple[Thread, Thread, Thread, Thread]) -> None:
        sends, sent, reads, read = (getattr(each, name) for each in times)
        self.least += reads - sent
        self.most += read - sends


def spin() -> None:
    """Be on a CPU, in so many slices as the competitor leaves."""
    until_ns = time.thread_time_ns() + 30 * MS
    while time.thread_time_ns() < until_ns:
        pass


def sleep() -> None:
    time.sleep(0.02)


def sleep_and_spin() -> None:
    for _ in range(3):
        time.sleep(0.005)
        until_ns = time.thread_time_ns() + 5 * MS
        while time.thread_time_ns() < until_ns:
            pass


@pytest.fixture
def crowded() -> Iterator[None]:
    """A CPU that this thread shares with another one, which never sleeps."""
    allowed = os.sched_getaffinity(0)
    cpu = max(allowed)
    hog = f"import os; os.sched_setaffinity(0, {{{cpu}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", hog], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()
            os.sched_setaffinity(0, {cpu})
            yield
        finally:
            os.sched_setaffinity(0, allowed)
            child.kill()


def measured(
    lab: Lab, path: NetworkPath, protocol: str, does: Callable[[], None]
) -> tuple[Snapshot, dict[str, Bounds]]:
    """Return what is seen of messages each of which waits for as long as the reader does something else."""
    truth = {name: Bounds() for name in ("wall_ns", "on_ns", "delay_ns")}
    with (tcp_pair if protocol == "tcp" else udp_pair)(path) as (sender, receiver), run(lab) as rx:
        for _ in range(MESSAGES):
            before = Thread.now()
            sender.send(bytes(100))
            after = Thread.now()
            does()
            reads = Thread.now()
            receiver.recv(200)
            times = (before, after, reads, Thread.now())
            for name, bounds in truth.items():
                bounds.add(name, times)
        return rx.interval(), truth


def hop(snapshot: Snapshot, name: str) -> int:
    return histogram(snapshot, f"rx.{name}").sum_ns


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("does", [spin, sleep, sleep_and_spin])
@pytest.mark.usefixtures("crowded")
def test_the_wait_is_split_as_the_scheduler_has_it(
    lab: Lab, veth: NetworkPath, protocol: str, does: Callable[[], None]
) -> None:
    snapshot, truth = measured(lab, veth, protocol, does)
    wake, asleep, runnable, read = (
        hop(snapshot, f"{protocol}_{part}") for part in ("wake", "asleep", "runnable", "read")
    )
    assert discarded(snapshot) == {}
    assert counts(snapshot)[f"rx.{protocol}_read"] == MESSAGES
    assert wake == asleep + runnable
    assert truth["wall_ns"].least <= wake + read <= truth["wall_ns"].most
    # The kernel's own sums begin and end some microseconds before a switch; where a virtual machine loses its CPU just
    # then, by that time.
    near = 0.05 * truth["wall_ns"].most
    assert truth["delay_ns"].least - near <= runnable <= truth["delay_ns"].most + near
    assert truth["on_ns"].least - near <= read
    # Python reckons the end of a sleep first: who loses its CPU then sleeps less.
    meant = {spin: 0, sleep: 20 * MS, sleep_and_spin: 15 * MS}[does] * MESSAGES
    slept = min(meant, truth["wall_ns"].least - truth["on_ns"].most - truth["delay_ns"].most)
    assert slept - near <= asleep <= truth["wall_ns"].most - truth["on_ns"].least - truth["delay_ns"].least + near


def test_what_is_forgotten_is_not_guessed(lab: Lab, veth: NetworkPath) -> None:
    """Who came on a CPU more often than is remembered while its data waited is said to be unknown."""
    with udp_pair(veth) as (sender, receiver), run(lab) as rx:
        for times in (5, 500):
            sender.send(bytes(100))
            for _ in range(times):
                time.sleep(0.0001)
            receiver.recv(200)
        snapshot = rx.interval()
    assert discarded(snapshot) == {("rx.udp_read", "no_history"): 1}
    assert counts(snapshot)["rx.udp_read"] == counts(snapshot)["rx.udp_wake"] == 1
    assert counts(snapshot)["rx.udp_total"] == 2


def test_each_of_many_threads_has_its_own(lab: Lab, veth: NetworkPath) -> None:
    """Threads that read at the same time sleep differently long."""
    slept: dict[int, float] = {}

    def reads(number: int) -> None:
        with udp_pair(veth) as (sender, receiver):
            sender.send(bytes(100))
            time.sleep(0.01 * number)
            receiver.recv(200)
            slept[number] = 0.01 * number

    with run(lab) as rx:
        threads = [threading.Thread(target=reads, args=(number,)) for number in range(1, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        snapshot = rx.interval()
    asleep = histogram(snapshot, "rx.udp_asleep")
    assert asleep.count == len(threads)
    assert asleep.sum_ns >= sum(slept.values()) * 1e9
    assert asleep.max_ns >= max(slept.values()) * 1e9
