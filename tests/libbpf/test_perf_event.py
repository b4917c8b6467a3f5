# SPDX-License-Identifier: Apache-2.0
"""Counters of a CPU, with the kernel's own in place of hardware: page faults are a number that is known."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import LoadError
from hopscope.libbpf import online_cpus
from hopscope.libbpf.perf_event import PERF_COUNT_SW_CPU_CLOCK, PERF_TYPE_SOFTWARE, CounterEvent, CpuCounter
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
CLOCK = CounterEvent(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK)
PAGE_FAULTS = CounterEvent(PERF_TYPE_SOFTWARE, 2)
NO_SUCH = CounterEvent(PERF_TYPE_SOFTWARE, 9999)
PAGES = 200


@pytest.fixture
def counters() -> Iterator[list[CpuCounter]]:
    """Return counters of page faults, one a CPU."""
    made = [CpuCounter(PAGE_FAULTS, cpu) for cpu in online_cpus()]
    yield made
    for each in made:
        each.close()


def value(counter: CpuCounter) -> int:
    return int.from_bytes(os.read(counter.fd, 24)[:8], sys.byteorder)


def fault() -> None:
    """Touch memory that is not there yet."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


def test_a_counter_counts_from_zero_once_it_is_enabled(counters: list[CpuCounter]) -> None:
    fault()
    assert [value(each) for each in counters] == [0] * len(counters)
    for each in counters:
        each.enable()
    fault()
    assert sum(map(value, counters)) >= PAGES


def test_a_counter_counts_its_own_cpu(counters: list[CpuCounter]) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one CPU alone")
    cpu, other = sorted(allowed)[:2]
    for each in counters:
        each.enable()

    def only_its_own() -> bool:
        before = value(counters[online_cpus().index(other)])
        first = value(counters[online_cpus().index(cpu)])
        for _ in range(50):
            fault()
        assert value(counters[online_cpus().index(cpu)]) - first >= 50 * PAGES
        return value(counters[online_cpus().index(other)]) - before < 50 * PAGES

    os.sched_setaffinity(0, {cpu})
    try:
        # Others may have as many there, but not each time.
        eventually(only_its_own, "what happens on one CPU is counted on another")
    finally:
        os.sched_setaffinity(0, allowed)


def test_times_say_that_it_counts_all_the_time() -> None:
    counter = CpuCounter(CLOCK, online_cpus()[0])
    try:
        counter.enable()
        first, second = counter.times(), counter.times()
        assert first is not None
        assert second is not None
        assert second.enabled_ns > first.enabled_ns
        assert second.running_ns == second.enabled_ns
    finally:
        counter.close()


def test_a_counter_that_is_not_there_is_an_error_with_its_number() -> None:
    with pytest.raises(LoadError) as caught:
        CpuCounter(NO_SUCH, online_cpus()[0])
    assert caught.value.errno == errno.ENOENT


def test_without_rights_the_error_says_which() -> None:
    code = (
        "import os\nfrom hopscope.errors import LoadError\n"
        "from hopscope.libbpf.perf_event import CounterEvent, CpuCounter\n"
        "os.setuid(65534)\n"
        "try:\n    CpuCounter(CounterEvent(1, 0), 0)\nexcept LoadError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Run it as root" in done.stdout
