# SPDX-License-Identifier: Apache-2.0
"""Perf events: the kernel's clock as something that programs hang on, and counters that programs read."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from typing import Final, NamedTuple

from hopscope.errors import KernelError
from hopscope.libbpf._abi import libc
from hopscope.libbpf._failure import load_error

# asm/unistd_64.h, asm-generic/unistd.h
_NR_PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241}
# include/uapi/linux/perf_event.h
PERF_TYPE_HARDWARE: Final = 0
PERF_TYPE_SOFTWARE: Final = 1
PERF_COUNT_HW_CPU_CYCLES: Final = 0
PERF_COUNT_HW_INSTRUCTIONS: Final = 1
PERF_COUNT_HW_CACHE_MISSES: Final = 3
PERF_COUNT_SW_CPU_CLOCK: Final = 0
_PERF_FLAG_FD_CLOEXEC: Final = 8
_PERF_EVENT_IOC_ENABLE: Final = 0x2400
_DISABLED: Final = 1 << 0
_PINNED: Final = 1 << 2
_FREQ: Final = 1 << 10
_TOTAL_TIMES: Final = 1 << 0 | 1 << 1
_READ: Final = struct.Struct("=QQQ")


class _PerfEventAttr(ctypes.Structure):
    """``struct perf_event_attr`` in its first version."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_freq", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("bp_addr", ctypes.c_uint64),
    )


class CounterEvent(NamedTuple):
    """What a counter counts: ``type`` and ``config`` of ``struct perf_event_attr``."""

    type: int
    config: int


class CounterTimes(NamedTuple):
    """How long a counter was wanted, and how long it counted, in ns."""

    enabled_ns: int
    running_ns: int


class CpuCounter:
    """A counter of one CPU, which counts whatever runs there, its idle task included: interrupts come in it, too.

    It does not count before :meth:`enable`. It is pinned: it counts always or, where its place in the processor is
    taken, never; the kernel does not make it take turns with others.

    Parameters
    ----------
    event
        What it counts.
    cpu
        Where.

    Raises
    ------
    LoadError
        The kernel refuses: errno says whether the machine has no such counter (ENOENT, EOPNOTSUPP, EINVAL), or a
        right is missing.
    """

    def __init__(self, event: CounterEvent, cpu: int) -> None:
        attr = _PerfEventAttr(type=event.type, config=event.config, read_format=_TOTAL_TIMES, flags=_DISABLED | _PINNED)
        self.fd = _open(attr, cpu, f"counter {event.config} of type {event.type} on CPU {cpu}")

    def enable(self) -> None:
        """Begin to count, from 0."""
        fcntl.ioctl(self.fd, _PERF_EVENT_IOC_ENABLE, 0)

    def times(self) -> CounterTimes | None:
        """Return how long it counted; None where it does not count, because its place is taken."""
        raw = os.read(self.fd, _READ.size)
        return CounterTimes(*_READ.unpack(raw)[1:]) if raw else None

    def close(self) -> None:
        """Give it back."""
        os.close(self.fd)


def open_clock(cpu: int, hz: int) -> int:
    """Return the file descriptor of an event that comes so often a second while the CPU is not idle (``cpu-clock``).

    Raises
    ------
    LoadError
        The kernel refuses: the rate is above ``kernel.perf_event_max_sample_rate``, or a right is missing.
    """
    attr = _PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_CPU_CLOCK, sample_freq=hz, flags=_FREQ)
    return _open(attr, cpu, f"a clock of {hz} Hz on CPU {cpu}")


def _open(attr: _PerfEventAttr, cpu: int, what: str) -> int:
    machine = platform.machine()
    if machine not in _NR_PERF_EVENT_OPEN:
        raise KernelError(f"perf_event_open(2) has no known number on {machine}", "Use an x86-64 or arm64 machine")
    attr.size = ctypes.sizeof(_PerfEventAttr)
    every_process, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    fd = int(
        libc().syscall(
            _NR_PERF_EVENT_OPEN[machine],
            ctypes.byref(attr),
            every_process,
            ctypes.c_int(cpu),
            no_group,
            ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC),
        )
    )
    if fd < 0:
        raise load_error(f"{what} cannot be had", ctypes.get_errno())
    return fd
