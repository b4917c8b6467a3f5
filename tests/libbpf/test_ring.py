# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import mmap
import os
import select
import struct
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hopscope.errors import FormatError, KernelError, LoadError, UsageError
from hopscope.libbpf import BpfObject, RingReader, ring
from hopscope.libbpf.ring import BUSY, DISCARD, HEADER_BYTES, committed_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

LENGTH = 56
SIZE = 4096
RECORD = np.dtype(
    {"names": ["number", "rest"], "formats": ["<u8", ("<u8", (6,))], "offsets": [0, 8], "itemsize": LENGTH}
)

HEADS = st.lists(
    st.builds(
        lambda length, flags: length | flags,
        st.sampled_from([LENGTH] * 8 + [0, 8, 48, 64]),
        st.sampled_from([0] * 6 + [BUSY, DISCARD, BUSY | DISCARD]),
    ),
    max_size=40,
)


@given(HEADS)
def test_prefix_is_what_a_loop_over_the_headers_finds(heads: list[int]) -> None:
    wanted = list(itertools.takewhile(lambda head: not head & BUSY and head & ~DISCARD == LENGTH, heads))
    found = committed_prefix(np.array(heads, np.uint32), LENGTH)
    assert found.committed == len(wanted)
    discarded = [False] * len(wanted) if found.discarded is None else found.discarded.tolist()
    assert discarded == [bool(head & DISCARD) for head in wanted]
    following = heads[len(wanted)] if len(wanted) < len(heads) else None
    assert found.foreign == (following is not None and not following & BUSY)


@dataclass
class Reserved:
    """A record as the kernel has it; `number` None for one of a foreign length."""

    position: int
    length: int
    number: int
    state: str = "busy"


class FakeKernel:
    """The kernel's side of a ring: it reserves and submits, and wraps around."""

    def __init__(self, start: int = 0) -> None:
        self.consumer = np.array([start], np.uint64)
        self.producer = np.array([start], np.uint64)
        self.data = np.zeros(2 * SIZE, np.uint8)
        self.records: list[Reserved] = []

    @property
    def free(self) -> int:
        return SIZE - int(self.producer[0] - self.consumer[0])

    def write(self, position: int, raw: bytes) -> None:
        """Write what shows in both halves of the doubled mapping."""
        places = (position + np.arange(len(raw))) % SIZE
        self.data[places] = self.data[places + SIZE] = np.frombuffer(raw, np.uint8)

    def reserve(self, length: int, number: int) -> Reserved | None:
        position, whole = int(self.producer[0]), -(-(length + HEADER_BYTES) // 8) * 8
        if whole > self.free:
            return None
        record = Reserved(position, length, number)
        self.write(position, struct.pack("=II", length | BUSY, position >> 12))
        self.write(position + HEADER_BYTES, (struct.pack("=Q", number) * (length // 8 + 1))[:length])
        self.producer[0] = position + whole
        self.records.append(record)
        return record

    def finish(self, record: Reserved, state: str) -> None:
        record.state = state
        flag = DISCARD if state == "discarded" else 0
        self.write(record.position, struct.pack("=I", record.length | flag))


def reader_of(*kernels: FakeKernel, length: int = LENGTH) -> RingReader:
    rings = [ring._Ring(kernel.consumer, kernel.producer, kernel.data, length) for kernel in kernels]
    with (
        mock.patch.object(ring, "_mapped", lambda fd, *_: rings[fd]),
        mock.patch.object(ring, "require_ordered_loads"),
    ):
        return RingReader(range(len(rings)), RECORD, mmap.PAGESIZE)


class RingMachine(RuleBasedStateMachine):
    """Records come and go in any order on two CPUs; the reader's account must hold after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()

    @initialize(start=st.sampled_from([0, 8, 64, SIZE - 64, SIZE - 8, 7 * SIZE + 24]))
    def begin(self, start: int) -> None:
        self.kernels = [FakeKernel(start), FakeKernel(3 * SIZE)]
        self.reader = reader_of(*self.kernels)
        self.received = self.discarded = self.skipped = 0

    @rule(cpu=st.integers(0, 1), length=st.sampled_from([LENGTH] * 9 + [0, 1, 48, 57, 200]), count=st.integers(1, 40))
    def reserve(self, cpu: int, length: int, count: int) -> None:
        for _ in range(count if length == LENGTH else 1):
            self.kernels[cpu].reserve(length, next(self.numbers))

    @rule(cpu=st.integers(0, 1), which=st.integers(0, 70), state=st.sampled_from(["submitted", "discarded"]))
    def finish_one(self, cpu: int, which: int, state: str) -> None:
        busy = [record for record in self.kernels[cpu].records if record.state == "busy"]
        if busy:
            self.kernels[cpu].finish(busy[which % len(busy)], state)

    @rule(cpu=st.integers(0, 1))
    def finish_all(self, cpu: int) -> None:
        for record in self.kernels[cpu].records:
            if record.state == "busy":
                self.kernels[cpu].finish(record, "submitted")

    @rule(cpu=st.sampled_from([(0,), (1,), (0, 1)]))
    def read(self, cpu: tuple[int, ...]) -> None:
        kernels = [self.kernels[number] for number in cpu]
        blocked = next((kernel for kernel in kernels if self.foreign_head(kernel)), None)
        read = self.reader.read if len(cpu) == 2 else lambda: self.reader.read_cpu(cpu[0])
        if blocked is not None:
            record = blocked.records.pop(0)
            with pytest.raises(FormatError, match=f"{record.length} bytes at position {record.position}, not of 56; "):
                read()
            self.skipped += -(-(record.length + HEADER_BYTES) // 8) * 8
            return
        wanted = [record for kernel in kernels for record in self.take(kernel)]
        found = read()
        assert found.dtype == RECORD
        assert found["number"].tolist() == wanted
        assert found["rest"].tolist() == [[number] * 6 for number in wanted]
        self.received += len(wanted)

    @precondition(lambda self: hasattr(self, "reader"))
    @invariant()
    def account_holds(self) -> None:
        assert self.reader.received == self.received
        assert self.reader.discarded == self.discarded
        assert self.reader.skipped_bytes == self.skipped
        for kernel in self.kernels:
            first = kernel.records[0].position if kernel.records else int(kernel.producer[0])
            assert int(kernel.consumer[0]) == first
        assert self.reader.fullness() == 1 - min(kernel.free for kernel in self.kernels) / SIZE

    @staticmethod
    def foreign_head(kernel: FakeKernel) -> bool:
        return bool(kernel.records) and kernel.records[0].length != LENGTH and kernel.records[0].state != "busy"

    def take(self, kernel: FakeKernel) -> list[int]:
        """What the reader has to find, taken off the model."""
        numbers = []
        while kernel.records and kernel.records[0].state != "busy" and kernel.records[0].length == LENGTH:
            record = kernel.records.pop(0)
            if record.state == "submitted":
                numbers.append(record.number)
            else:
                self.discarded += 1
        return numbers


TestRingMachine = RingMachine.TestCase


def test_positions_that_cannot_be_are_skipped_to_the_producers() -> None:
    kernel = FakeKernel()
    kernel.producer[0] = 5 * SIZE
    reader = reader_of(kernel)
    with pytest.raises(FormatError, match=f"at position 0, not of 56; {5 * SIZE} bytes were skipped"):
        reader.read()
    assert reader.read().shape == (0,)


def test_length_that_cannot_be_is_skipped_to_the_end() -> None:
    kernel = FakeKernel()
    record = kernel.reserve(LENGTH, 1)
    assert record is not None
    kernel.write(record.position, struct.pack("=I", 1 << 20))
    reader = reader_of(kernel)
    with pytest.raises(FormatError, match="record of 1048576 bytes at position 0"):
        reader.read()
    assert reader.skipped_bytes == 64
    kernel.records.clear()
    again = kernel.reserve(LENGTH, 2)
    assert again is not None
    kernel.finish(again, "submitted")
    assert reader.read()["number"].tolist() == [2]


def test_record_that_the_producer_has_not_reserved_whole_is_foreign() -> None:
    kernel = FakeKernel()
    record = kernel.reserve(LENGTH, 1)
    assert record is not None
    kernel.finish(record, "submitted")
    kernel.producer[0] = 24
    reader = reader_of(kernel)
    with pytest.raises(FormatError, match="24 bytes were skipped"):
        reader.read()


def test_records_in_front_of_a_foreign_one_are_not_lost() -> None:
    kernel = FakeKernel()
    for length, number in ((LENGTH, 1), (8, 2), (LENGTH, 3)):
        record = kernel.reserve(length, number)
        assert record is not None
        kernel.finish(record, "submitted")
    reader = reader_of(kernel)
    assert reader.read()["number"].tolist() == [1]
    with pytest.raises(FormatError, match="record of 8 bytes at position 64, not of 56; 16 bytes were skipped"):
        reader.read()
    assert reader.read()["number"].tolist() == [3]


@pytest.mark.parametrize("machine", ["aarch64", "ppc64le", "riscv64"])
def test_machine_that_reorders_loads_is_refused(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(ring.platform, "machine", lambda: machine)
    with pytest.raises(KernelError, match=f"cannot be read from a ring on {machine}.*Use histograms"):
        RingReader([], RECORD, SIZE)


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE - 1, 3 * mmap.PAGESIZE])
def test_size_that_is_no_rings_is_refused(size: int) -> None:
    with (
        mock.patch.object(ring, "require_ordered_loads"),
        pytest.raises(UsageError, match=f"cannot have {size} bytes.*power of two from {mmap.PAGESIZE}"),
    ):
        RingReader([], RECORD, size)


@pytest.mark.parametrize(("text", "cpus"), [("0\n", [0]), ("0-3\n", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8])])
def test_cpu_list(text: str, cpus: list[int]) -> None:
    assert ring.cpu_list(text) == cpus


@pytest.fixture
def loaded(compiled: Callable[[str], Path]) -> Iterator[Callable[[int], BpfObject]]:
    """Return a function that loads the program, which then discards each n-th record."""
    opened = BpfObject.open(compiled("ring"))

    def load(discard_each: int) -> BpfObject:
        opened.set_const("discard_each", discard_each)
        opened.load()
        return opened

    with opened:
        yield load


CALLS = 150_000
CALLER = """
import os, sys
os.sched_setaffinity(0, {{{cpu}}})
print(flush=True)
for _ in sys.stdin:
    for _ in range({calls}): os.getppid()
    print(flush=True)
"""


@contextmanager
def callers(cpus: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have a process on each CPU that makes CALLS system calls for each line that it gets."""
    with ExitStack() as stack:
        started = []
        for cpu in cpus:
            code = CALLER.format(cpu=cpu, calls=CALLS)
            process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        for _ in answers(started):
            pass
        yield started


def answers(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Yield again and again until each of the processes has written a line."""
    waiting = {process.stdout for process in processes if process.stdout is not None}
    while waiting:
        yield
        for pipe in select.select(waiting, [], [], 0)[0]:
            assert pipe.readline()
            waiting.remove(pipe)


def run_and_read(opened: BpfObject, reader: RingReader, *, early: bool) -> list[NDArray[np.void]]:
    """Let every CPU produce twice CALLS records; read all the time if `early`, else only in the end."""
    cpus = sorted(os.sched_getaffinity(0))
    batches = []
    with callers(cpus) as processes, opened.programs["on_call"].attach():
        opened.data()["tgids"][cpus] = [process.pid for process in processes]
        for _ in range(2):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            batches += [reader.read() for _ in answers(processes) if early]
            batches += [reader.read()] if early else []
        opened.data()["tgids"] = 0
    batches.append(reader.read())
    return batches


def assert_every_record_accounted(opened: BpfObject, reader: RingReader, batches: list[NDArray[np.void]]) -> None:
    records = np.concatenate(batches)
    accounts = opened.data()["accounts"]
    assert len(records) == reader.received
    assert reader.skipped_bytes == 0
    assert reader.received + reader.discarded + accounts["lost"].sum() == accounts["produced"].sum()
    assert reader.discarded == accounts["discarded"].sum()
    assert np.array_equal(records["check"], records["number"][:, np.newaxis] + np.arange(1, 6, dtype=np.uint64))
    for cpu in sorted(os.sched_getaffinity(0)):
        mine = records[records["cpu"] == cpu]
        assert accounts["produced"][cpu] >= 2 * CALLS
        numbers = mine["number"].astype(np.int64)
        steps = np.diff(numbers, prepend=-1, append=int(accounts["produced"][cpu]))
        assert steps.min() >= 1
        # A hole in the numbers is a record that the kernel counted as lost or discarded, and nothing else.
        assert (steps - 1).sum() == accounts["lost"][cpu] + accounts["discarded"][cpu]
        assert len(np.unique(mine["tgid"])) == 1


@pytest.mark.root
def test_stress_with_rings_that_hold_everything_loses_nothing(loaded: Callable[[int], BpfObject]) -> None:
    opened = loaded(0)
    # Room for all of them, and for the other system calls of a process: a reader may never get the CPU.
    size = 1 << (64 * (2 * CALLS + 1000)).bit_length()
    with RingReader.per_cpu(opened.maps["rings"], opened.btf.dtype("hop_numbered"), size) as reader:
        batches = run_and_read(opened, reader, early=True)
        assert opened.data()["accounts"]["lost"].sum() == 0
        assert reader.discarded == 0
        assert_every_record_accounted(opened, reader, batches)


@pytest.mark.root
@pytest.mark.parametrize("discard_each", [0, 7])
def test_stress_with_rings_that_overflow_accounts_for_every_loss(
    loaded: Callable[[int], BpfObject], discard_each: int
) -> None:
    opened = loaded(discard_each)
    with RingReader.per_cpu(opened.maps["rings"], opened.btf.dtype("hop_numbered"), mmap.PAGESIZE) as reader:
        batches = run_and_read(opened, reader, early=True)
        # More was read than the rings hold, so that they wrapped around, and yet some did not fit.
        assert reader.received > len(reader.cpus) * mmap.PAGESIZE // 64
        assert opened.data()["accounts"]["lost"].sum() > 0
        assert (reader.discarded > 0) == bool(discard_each)
        assert_every_record_accounted(opened, reader, batches)


@pytest.mark.root
def test_ring_that_nobody_reads_keeps_its_oldest_records(loaded: Callable[[int], BpfObject]) -> None:
    opened = loaded(0)
    with RingReader.per_cpu(opened.maps["rings"], opened.btf.dtype("hop_numbered"), mmap.PAGESIZE) as reader:
        batches = run_and_read(opened, reader, early=False)
        assert_every_record_accounted(opened, reader, batches)
        held = mmap.PAGESIZE // 64
        for cpu in sorted(os.sched_getaffinity(0)):
            numbers = batches[0][batches[0]["cpu"] == cpu]["number"]
            # The kernel never lets the producer reach the consumer's position.
            assert numbers.tolist() == list(range(len(numbers)))
            assert held - 1 <= len(numbers) <= held


@pytest.mark.root
def test_record_of_another_size_is_reported_and_stepped_over(loaded: Callable[[int], BpfObject]) -> None:
    opened = loaded(0)
    globals_ = opened.data()
    affinity = os.sched_getaffinity(0)
    cpu = min(affinity)
    with RingReader.per_cpu(opened.maps["rings"], opened.btf.dtype("hop_numbered"), mmap.PAGESIZE) as reader:
        os.sched_setaffinity(0, {cpu})
        try:
            with opened.programs["on_return"].attach():
                globals_["foreign_tgid"] = os.getpid()
                os.getppid()
            with opened.programs["on_call"].attach():
                globals_["tgids"][cpu] = os.getpid()
                os.getppid()
                globals_["tgids"][cpu] = 0
        finally:
            os.sched_setaffinity(0, affinity)
        with pytest.raises(
            FormatError, match=f"ring of CPU {cpu} has a record of 8 bytes at position 0, not of 56; 16"
        ):
            reader.read()
        found = reader.read_cpu(cpu)
        assert found["number"].tolist() == list(range(len(found)))
        assert len(found) == globals_["accounts"]["produced"][cpu] > 0


@pytest.mark.root
def test_ring_that_the_kernel_refuses_raises(loaded: Callable[[int], BpfObject]) -> None:
    opened = loaded(0)
    with pytest.raises(LoadError, match="cannot be mapped"):
        RingReader([opened.maps["rings"].fd], RECORD, mmap.PAGESIZE)


@pytest.mark.root
def test_reading_leaves_no_file_descriptor(loaded: Callable[[int], BpfObject]) -> None:
    opened = loaded(0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = RingReader.per_cpu(opened.maps["rings"], opened.btf.dtype("hop_numbered"), mmap.PAGESIZE)
    reader.close()
    reader.close()
    assert reader.read().shape == (0,)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
