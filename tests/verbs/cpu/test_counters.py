# SPDX-License-Identifier: Apache-2.0
"""Counters of each part, with the kernel's own in place of hardware, which virtual machines seldom have.

The kernel's clock counts ns: what it counts in a part must be the part's time. Page faults are a number that is known.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import KernelError
from hopscope.libbpf.perf_event import (
    PERF_COUNT_SW_CPU_CLOCK,
    PERF_TYPE_SOFTWARE,
    CounterEvent,
    CounterTimes,
    CpuCounter,
)
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions
from hopscope.verbs.cpu.pmu import HARDWARE, NAMES, PmuCounters, PmuReading
from tests.lab.measure import ping, udp_pair, way
from tests.lab.uring import RECV, SEND, Uring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from hopscope.model.cpu import CpuRow, CpuSnapshot, Part

pytestmark = pytest.mark.root
CLOCK = CounterEvent(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK)
PAGE_FAULTS = CounterEvent(PERF_TYPE_SOFTWARE, 2)
NO_SUCH = CounterEvent(PERF_TYPE_SOFTWARE, 9999)
CLOCKS = dict.fromkeys(NAMES, CLOCK)
PAGES = 64
MESSAGES = 10_000
# A counter is read after the time, and later so in a cold cache than in a warm one.
SKEW_NS = 150
# A hypervisor may take the CPU away between the two, which shifts as much into the next part.
STOLEN_NS = 3_000_000


def run(group_by: str = "process", **counters: CounterEvent) -> CpuCollector:
    return CpuCollector(CpuOptions(group_by=group_by, counters=counters))


def own(snapshot: CpuSnapshot) -> dict[str, Part]:
    (row,) = [row for row in snapshot.rows if f"({os.getpid()})" in row.group["process"]]
    return row.parts


def assert_clocks_agree(row: CpuRow) -> None:
    for name, part in row.parts.items():
        assert part.counted is not None
        for counter in NAMES:
            counted = getattr(part.counted, counter)
            assert abs(counted - part.ns) <= 0.05 * part.ns + SKEW_NS * part.runs + STOLEN_NS, (
                row.group,
                name,
                counter,
            )


@contextlib.contextmanager
def echo() -> Iterator[socket.socket]:
    """Return a socket whose messages a thread sends back; both sleep in their calls."""
    near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with near, far:
        near.bind(("127.0.0.1", 0))
        far.bind(("127.0.0.1", 0))
        near.connect(far.getsockname())
        far.connect(near.getsockname())

        def answer() -> None:
            while message := far.recv(2000):
                far.send(message)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield near
        finally:
            near.send(b"")
            thread.join()


@pytest.mark.parametrize("group_by", ["cpu", "process", "interface"])
def test_a_clock_counts_the_time_of_each_part_and_no_other(lab: Lab, group_by: str) -> None:
    with run(group_by, **CLOCKS) as cpu, udp_pair(way(lab, "veth-4")) as udp, echo() as sleeper:
        cpu.interval()
        assert ping(*udp, MESSAGES) == MESSAGES
        for _ in range(MESSAGES):
            sleeper.send(b"x" * 100)
            sleeper.recv(200)
        snapshot = cpu.interval()
        total = cpu.total()
    for row in (snapshot.total, *snapshot.rows, total.total):
        assert_clocks_agree(row)
    for name in ("net_rx", "send", "receive"):
        assert snapshot.total.parts[name].ns > 5 * STOLEN_NS, name
    assert not [note for note in snapshot.notes if "count" in note]


def test_a_clock_counts_what_is_decided_at_the_end_of_a_call(lab: Lab) -> None:
    """As of io_uring, where socket calls are found by system calls."""
    with contextlib.ExitStack() as stack:
        try:
            ring = stack.enter_context(Uring())
        except OSError as error:
            pytest.skip(f"io_uring cannot be had: {error}")
        sender, receiver = stack.enter_context(udp_pair(way(lab, "veth-4")))
        cpu = stack.enter_context(run(**CLOCKS))
        cpu.interval()
        for _ in range(5 * MESSAGES):  # a call takes some 0.3 µs on a quick machine
            ring.submit(SEND, sender, 100)
            assert ring.result() == 100
            ring.submit(RECV, receiver, 100)
            assert ring.result() == 100
        snapshot = cpu.interval()
    for name in ("send", "receive"):
        assert own(snapshot)[name].ns > 3 * STOLEN_NS, name
    for row in snapshot.rows:
        assert_clocks_agree(row)


def receive_pages(sender: socket.socket, receiver: socket.socket) -> None:
    """Receive messages of a page, each into one that is not there yet."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        payload = bytes(mmap.PAGESIZE)
        with memoryview(memory) as view:
            for page in range(PAGES):
                sender.send(payload)
                with view[page * mmap.PAGESIZE : (page + 1) * mmap.PAGESIZE] as target:
                    receiver.recv_into(target)


def test_page_faults_of_receiving_are_counted_where_they_are() -> None:
    with (
        run(cycles=CLOCK, cache_misses=PAGE_FAULTS) as cpu,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        receive_pages(sender, receiver)
        cpu.interval()
        receive_pages(sender, receiver)
        snapshot = cpu.interval()
    parts = own(snapshot)
    assert parts["receive"].runs == PAGES
    assert snapshot.total.parts["net_rx"].packets >= PAGES
    faults = {"receive": PAGES, "send": 0, "net_rx": 0}
    for name, part in (parts | {"net_rx": snapshot.total.parts["net_rx"]}).items():
        assert part.counted is not None
        assert part.counted.cache_misses == faults.get(name, 0), name
        assert part.counted.instructions is None


def test_a_counter_that_loses_its_place_on_a_cpu_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with run("cpu", cycles=CLOCK, instructions=CLOCK) as cpu, echo() as near:
        lost: list[CpuCounter] = []
        times = CpuCounter.times

        def times_of_all_but_one(self: CpuCounter) -> CounterTimes | None:
            lost.extend([] if lost else [self])
            return None if self in lost else times(self)

        monkeypatch.setattr(CpuCounter, "times", times_of_all_but_one)
        for _ in range(100):
            near.send(b"x")
            near.recv(1)
        snapshot = cpu.interval()
    counted = snapshot.total.parts["send"].counted
    assert counted is not None
    assert counted.cycles is None
    assert counted.instructions
    assert "cycles: not counted: other users occupy the hardware counters" in snapshot.notes


def test_a_counter_that_is_not_there_is_missing_and_a_note_says_so() -> None:
    with run("cpu", cycles=CLOCK, instructions=NO_SUCH, cache_misses=CLOCK) as cpu, echo() as near:
        for _ in range(100):
            near.send(b"x")
            near.recv(1)
        snapshot = cpu.interval()
    counted = snapshot.total.parts["send"].counted
    assert counted is not None
    assert counted.instructions is None
    assert counted.cycles
    assert counted.cache_misses
    assert "instructions: no hardware counter on this machine (No such file or directory)" in snapshot.notes


def test_a_machine_with_none_of_them_gets_one_sentence_and_the_next_step() -> None:
    with pytest.raises(KernelError) as caught, run(cycles=NO_SUCH, cache_misses=NO_SUCH):
        pass
    assert caught.value.what == (
        "This machine has no hardware counters for cycles, cache_misses (perf_event_open: No such file or directory)"
    )
    assert "--counters" in caught.value.next_step


def test_without_counters_nothing_is_counted() -> None:
    with run("cpu") as cpu:
        snapshot = cpu.interval()
    assert {part.counted for part in snapshot.total.parts.values()} == {None}


def test_nothing_is_left_open() -> None:
    def events() -> int:
        return sum("perf_event" in str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists())

    before = events()
    with PmuCounters(CLOCKS):
        assert events() >= before + len(NAMES)
    assert events() == before
    with pytest.raises(KernelError), PmuCounters({"cycles": NO_SUCH}):
        pass
    assert events() == before


def reading(**times: tuple[int, int]) -> PmuReading:
    return PmuReading(np.zeros(0), {name: CounterTimes(*each) for name, each in times.items()})


def test_counters_that_do_not_count_all_the_time_are_told() -> None:
    """Hardware alone runs short of places for counters."""
    before = reading(cycles=(100, 100), instructions=(100, 100), cache_misses=(100, 100))
    turns = reading(cycles=(200, 200), instructions=(200, 150), cache_misses=(200, 100))
    with PmuCounters(CLOCKS) as pmu:
        assert pmu.notes(before, before) == []
        assert pmu.notes(before, turns) == [
            "instructions: counted 50% of the time: other users share the hardware counters; not scaled",
            "cache_misses: counted 0% of the time: other users share the hardware counters; not scaled",
        ]
        assert pmu.notes(before, reading(cycles=(200, 200), cache_misses=(200, 200))) == [
            "instructions: not counted: other users occupy the hardware counters"
        ]


def has_hardware() -> bool:
    try:
        with PmuCounters(HARDWARE):
            return True
    except KernelError:
        return False


@pytest.mark.skipif("not has_hardware()", reason="this machine has no hardware counters")
def test_hardware_counts_in_each_part(lab: Lab) -> None:
    with run("cpu", **HARDWARE) as cpu, udp_pair(way(lab, "veth-4")) as udp:
        cpu.interval()
        assert ping(*udp, MESSAGES) == MESSAGES
        snapshot = cpu.interval()
    for name in ("net_rx", "send", "receive"):
        part = snapshot.total.parts[name]
        assert part.counted is not None
        if part.counted.cycles is not None:
            assert 0.1 < part.counted.cycles / part.ns < 10
        if part.counted.instructions is not None:
            assert part.counted.instructions > 100 * part.runs
