# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: opened on each CPU, read by the kernel side at each change of part."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope.bpf.layout import HopCpuPart, HopPmuCounter
from hopscope.errors import KernelError, LoadError
from hopscope.libbpf import online_cpus, possible_cpus
from hopscope.libbpf.perf_event import (
    PERF_COUNT_HW_CACHE_MISSES,
    PERF_COUNT_HW_CPU_CYCLES,
    PERF_COUNT_HW_INSTRUCTIONS,
    PERF_TYPE_HARDWARE,
    CounterEvent,
    CounterTimes,
    CpuCounter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from hopscope.libbpf import BpfObject

# In the order of the kernel side.
NAMES: Final = ("cycles", "instructions", "cache_misses")
HARDWARE: Final[Mapping[str, CounterEvent]] = {
    "cycles": CounterEvent(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
    "instructions": CounterEvent(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS),
    "cache_misses": CounterEvent(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES),
}
# What perf_event_open(2) says where the machine has no such counter.
_ABSENT: Final = {errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL}
# A rounded per cent would be 100.
_SHARED_BELOW: Final = 0.995

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class PmuReading:
    """All counters at one instant, cumulative.

    Attributes
    ----------
    counted
        int64, shape (3, cpus, rows, parts), in the order of :data:`NAMES`.
    times
        For each counter that counts, how long, over all CPUs.
    """

    counted: Array
    times: Mapping[str, CounterTimes]


class PmuCounters:
    """The counters of each CPU that is online, as far as the machine has them; closes them on leaving.

    Parameters
    ----------
    events
        Name (of :data:`NAMES`) → what it counts.

    Raises
    ------
    KernelError
        The machine has none of them.
    LoadError
        A right is missing.
    """

    def __init__(self, events: Mapping[str, CounterEvent]) -> None:
        self._absent: dict[str, str] = {}
        self._counters: dict[str, dict[int, CpuCounter]] = {}
        with contextlib.ExitStack() as stack:
            for name, event in events.items():
                self._open(name, event, stack)
            if not self._counters:
                said = ", ".join(set(self._absent.values()))
                raise KernelError(
                    f"This machine has no hardware counters for {', '.join(events)} (perf_event_open: {said})",
                    "Omit --counters, or use a machine that has them; in a virtual machine, its host must "
                    "provide them (QEMU: KVM and `-cpu host`)",
                )
            self._opened = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def configure(self, bpf: BpfObject, rows: int) -> None:
        """Prepare an object that is not loaded, whose CPUs have so many rows."""
        bpf.set_const("cfg_pmu", sum(1 << NAMES.index(name) for name in self._counters))
        bpf.maps["pmu"].set_max_entries(possible_cpus() * HopPmuCounter.HOP_PMU_COUNTERS)
        bpf.maps["pmu_nows"].set_max_entries(possible_cpus())
        bpf.maps["pmu_rows"].set_max_entries(possible_cpus() * rows)

    def start(self, bpf: BpfObject, rows: int) -> None:
        """Hand the counters to the loaded object's programs; they count from 0 on."""
        self._rows = (
            bpf.maps["pmu_rows"]
            .array()["counted"]
            .reshape(possible_cpus(), rows, HopCpuPart.HOP_CPU_PARTS, HopPmuCounter.HOP_PMU_COUNTERS)
        )
        for name, counters in self._counters.items():
            for cpu, counter in counters.items():
                index = cpu * HopPmuCounter.HOP_PMU_COUNTERS + NAMES.index(name)
                bpf.maps["pmu"].update(struct.pack("=I", index), struct.pack("=I", counter.fd))
                counter.enable()

    def read(self) -> PmuReading:
        """Return what was counted until now."""
        times = {}
        for name, counters in self._counters.items():
            each = [found for counter in counters.values() if (found := counter.times())]
            if len(each) == len(counters):
                times[name] = CounterTimes(*map(sum, zip(*each, strict=True)))
        return PmuReading(np.moveaxis(self._rows.astype(np.int64), -1, 0), times)

    def notes(self, before: PmuReading, after: PmuReading) -> list[str]:
        """Return a sentence for each counter that is missing, or did not count all the time."""
        notes = [f"{name}: no hardware counter on this machine ({reason})" for name, reason in self._absent.items()]
        for name in self._counters:
            if name not in after.times:
                notes.append(f"{name}: not counted: other users occupy the hardware counters")
                continue
            share = _counting(before.times[name], after.times[name])
            if share < _SHARED_BELOW:
                notes.append(
                    f"{name}: counted {share:.0%} of the time: other users share the hardware counters; not scaled"
                )
        return notes

    def _open(self, name: str, event: CounterEvent, stack: contextlib.ExitStack) -> None:
        """Open a counter on all CPUs, or on none."""
        counters: dict[int, CpuCounter] = {}
        try:
            for cpu in online_cpus():
                counters[cpu] = CpuCounter(event, cpu)
                stack.callback(counters[cpu].close)
        except LoadError as error:
            if error.errno not in _ABSENT:
                raise
            self._absent[name] = os.strerror(error.errno)
        else:
            self._counters[name] = counters


def _counting(before: CounterTimes, after: CounterTimes) -> float:
    """Return the part of the time that a counter counted."""
    enabled_ns = after.enabled_ns - before.enabled_ns
    return (after.running_ns - before.running_ns) / enabled_ns if enabled_ns else 1.0
