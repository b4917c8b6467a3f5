# SPDX-License-Identifier: Apache-2.0
"""Perf events: a clock that programs hang on, counters that they read, what is recorded into a ring."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

from hopscope.errors import KernelError, LoadError
from hopscope.libbpf._abi import libc
from hopscope.libbpf._failure import load_error

# asm/unistd_64.h, asm-generic/unistd.h
_NR_PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241}
# include/uapi/linux/perf_event.h
PERF_TYPE_HARDWARE: Final = 0
PERF_TYPE_SOFTWARE: Final = 1
PERF_TYPE_TRACEPOINT: Final = 2
PERF_COUNT_HW_CPU_CYCLES: Final = 0
PERF_COUNT_HW_INSTRUCTIONS: Final = 1
PERF_COUNT_HW_CACHE_MISSES: Final = 3
PERF_COUNT_SW_CPU_CLOCK: Final = 0
PERF_COUNT_SW_BPF_OUTPUT: Final = 10
_PERF_FLAG_FD_CLOEXEC: Final = 8
_PERF_EVENT_IOC_ENABLE: Final = 0x2400
_PERF_EVENT_IOC_DISABLE: Final = 0x2401
_PERF_EVENT_IOC_SET_OUTPUT: Final = 0x2405
_PERF_EVENT_IOC_SET_FILTER: Final = 0x40082406
_PERF_EVENT_IOC_ID: Final = 0x80082407
_DISABLED: Final = 1 << 0
_PINNED: Final = 1 << 2
_FREQ: Final = 1 << 10
_SAMPLE_ID_ALL: Final = 1 << 18
_EXCLUDE_CALLCHAIN_USER: Final = 1 << 22
_USE_CLOCKID: Final = 1 << 25
# What a record has, in this order: identifier, pid and tid, time, CPU, weight, [stack,] the event's own bytes.
_SAMPLE_TID: Final = 1 << 1
_SAMPLE_TIME: Final = 1 << 2
_SAMPLE_CPU: Final = 1 << 7
# With it, an event that counts something else than itself (sched_stat_runtime: ns) is one record, not as many.
_SAMPLE_PERIOD: Final = 1 << 8
_SAMPLE_CALLCHAIN: Final = 1 << 5
_SAMPLE_RAW: Final = 1 << 10
_SAMPLE_IDENTIFIER: Final = 1 << 16
_RECORDED: Final = _SAMPLE_IDENTIFIER | _SAMPLE_TID | _SAMPLE_TIME | _SAMPLE_CPU | _SAMPLE_PERIOD | _SAMPLE_RAW
# Kernel commit 119a784c8127 ("perf/core: Add a new read format to get a number of lost samples", 6.0).
_FORMAT_LOST: Final = 1 << 4
_TOTAL_TIMES: Final = 1 << 0 | 1 << 1
# The PMU whose events are calls of the kernel's functions, where the kernel grants kprobes.
KPROBE_PMU: Final = Path("/sys/bus/event_source/devices/kprobe")
# The same of a file's instructions, whoever runs them.
UPROBE_PMU: Final = Path("/sys/bus/event_source/devices/uprobe")
_EVERY_PROCESS: Final = -1
_ANY_CPU: Final = -1
_READ: Final = struct.Struct("=QQQ")
_U64: Final = struct.Struct("=Q")


class _PerfEventAttr(ctypes.Structure):
    """``struct perf_event_attr`` up to PERF_ATTR_SIZE_VER5, which kernels know since 4.8."""

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
        ("bp_len", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
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


class RecordCount(NamedTuple):
    """What the kernel counted of a recorded event on one CPU.

    Attributes
    ----------
    weight
        One for each time that it was passed, but for events that count something else (sched_stat_runtime: ns).
    lost
        Records that the ring had no room for; None where the kernel does not count them (before 6.0).
    """

    weight: int
    lost: int | None


class RecordedEvent:
    """Something on one CPU that is recorded into a ring, or counted alone, each time; disabled until :meth:`enable`.

    Records have CLOCK_MONOTONIC and the fields that :mod:`hopscope.libbpf.perf_ring` reads.

    Parameters
    ----------
    name
        As errors call it.
    attr
        What it is; what its records have comes to that here.
    cpu
        Where it is to be seen; whatever runs there.
    recorded
        Whether it has records; else it is counted alone.

    Attributes
    ----------
    fd : int
        Of the event.
    id : int
        Which its records carry.

    Raises
    ------
    LoadError
        The kernel refuses.
    """

    def __init__(self, name: str, attr: _PerfEventAttr, cpu: int, *, recorded: bool = True) -> None:
        attr.flags |= _DISABLED
        if recorded:
            attr.sample_freq = 1  # here sample_period: each one
            attr.sample_type |= _RECORDED
            attr.flags |= _SAMPLE_ID_ALL | _USE_CLOCKID
            attr.clockid = time.CLOCK_MONOTONIC
            attr.read_format = _FORMAT_LOST
        self.cpu = cpu
        what = f"{name} on CPU {cpu}"
        try:
            self.fd = _open(attr, cpu, what)
        except LoadError as error:
            if error.errno != errno.EINVAL or not attr.read_format:
                raise
            attr.read_format = 0
            self.fd = _open(attr, cpu, what)
        try:
            self.id = int(_U64.unpack(fcntl.ioctl(self.fd, _PERF_EVENT_IOC_ID, bytes(_U64.size)))[0])
        except BaseException:
            os.close(self.fd)
            raise

    def share_ring(self, owner: RecordedEvent) -> None:
        """Let the records go to the ring of another event on the same CPU."""
        fcntl.ioctl(self.fd, _PERF_EVENT_IOC_SET_OUTPUT, owner.fd)

    def enable(self) -> None:
        """Begin."""
        fcntl.ioctl(self.fd, _PERF_EVENT_IOC_ENABLE, 0)

    def disable(self) -> None:
        """Stop; when this returns, no record comes any more."""
        fcntl.ioctl(self.fd, _PERF_EVENT_IOC_DISABLE, 0)

    def counted(self) -> RecordCount:
        """Return how often it was passed, as the filter has it, and how many records of that found no room."""
        values = _U64.iter_unpack(os.read(self.fd, 2 * _U64.size))
        weight, *lost = (int(value) for (value,) in values)
        return RecordCount(weight, lost[0] if lost else None)

    def close(self) -> None:
        """Give it back."""
        os.close(self.fd)


class Tracepoint(RecordedEvent):
    """A kernel tracepoint on one CPU.

    Parameters
    ----------
    name
        As errors call it.
    number
        The tracepoint's, from its ``id`` file in tracefs.
    cpu
        Where it is to be seen.
    recorded
        Whether it has records; else it is counted alone.

    Raises
    ------
    LoadError
        The kernel refuses.
    """

    def __init__(self, name: str, number: int, cpu: int, *, recorded: bool = True) -> None:
        attr = _PerfEventAttr(type=PERF_TYPE_TRACEPOINT, config=number)
        super().__init__(f"tracepoint {name}", attr, cpu, recorded=recorded)

    def set_filter(self, text: str) -> None:
        """Let the kernel leave out what does not match, by its own filter language.

        Raises
        ------
        OSError
            EINVAL: the kernel does not understand it, and does not say why.
        """
        fcntl.ioctl(self.fd, _PERF_EVENT_IOC_SET_FILTER, bytearray(text.encode() + b"\0"))


class ProgramOutput(RecordedEvent):
    """What a BPF program has to say on one CPU, by ``bpf_perf_event_output``.

    Parameters
    ----------
    name
        As errors call it.
    cpu
        Where the program runs.

    Raises
    ------
    LoadError
        The kernel refuses.
    """

    def __init__(self, name: str, cpu: int) -> None:
        super().__init__(name, _PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_BPF_OUTPUT), cpu)


class FunctionProbe(RecordedEvent):
    """The calls or the returns of a kernel function on one CPU, by a probe of its own that ends with this process.

    A record has the innermost addresses of the stack, where they are wanted, before the event's own bytes.

    Parameters
    ----------
    name
        The function's.
    pmu
        The type that the kernel gives to probes, from sysfs (``kprobe/type``).
    config
        0 for calls, the bit in sysfs (``kprobe/format/retprobe``) for returns.
    depth
        How many addresses.
    cpu
        Where it is to be seen.
    offset
        Of the instruction in the function, in bytes.
    recorded
        Whether it has records; else it is counted alone.

    Raises
    ------
    LoadError
        The kernel refuses; EINVAL, EILSEQ and ENOENT say that there can be no probe there.
    """

    def __init__(  # noqa: PLR0913 # what perf_event_open(2) has to know
        self, name: str, pmu: int, config: int, depth: int, cpu: int, *, offset: int = 0, recorded: bool = True
    ) -> None:
        attr = _PerfEventAttr(type=pmu, config=config)
        named = ctypes.create_string_buffer(name.encode())
        attr.bp_addr, attr.bp_len = ctypes.addressof(named), offset  # here kprobe_func and probe_offset
        if depth and recorded:
            attr.sample_type = _SAMPLE_CALLCHAIN
            attr.sample_max_stack = depth
            attr.flags = _EXCLUDE_CALLCHAIN_USER
        super().__init__(f"a probe on {name}", attr, cpu, recorded=recorded)


def open_clock(cpu: int, hz: int) -> int:
    """Return the file descriptor of an event that comes so often a second while the CPU is not idle (``cpu-clock``).

    Raises
    ------
    LoadError
        The kernel refuses: the rate is above ``kernel.perf_event_max_sample_rate``, or a right is missing.
    """
    attr = _PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_CPU_CLOCK, sample_freq=hz, flags=_FREQ)
    return _open(attr, cpu, f"a clock of {hz} Hz on CPU {cpu}")


def open_uprobe(path: str, offset: int, name: str, *, returns: bool, pid: int | None = None) -> int:
    """Return the file descriptor of an event that comes when an instruction of a file is reached, on any CPU.

    The kernel keeps to the file that was opened, whatever takes its place in the folder afterwards. It puts a
    breakpoint into every process that maps the file, or into one process alone, and removes it with the descriptor.

    Parameters
    ----------
    path
        Of the file, such as ``/proc/self/fd/3``.
    offset
        In the file; of a function's first instruction.
    name
        As errors call it.
    returns
        Come when the function returns instead.
    pid
        The only process.

    Raises
    ------
    LoadError
        The kernel refuses.
    """
    try:
        pmu = int((UPROBE_PMU / "type").read_text())
        # "config:0": the bit's place.
        bit = int((UPROBE_PMU / "format" / "retprobe").read_text().partition(":")[2])
    except OSError as error:
        raise LoadError(
            "This kernel has no uprobes, which probes in libraries need",
            "Boot a kernel with CONFIG_UPROBE_EVENTS=y",
            errno=error.errno or 0,
        ) from error
    attr = _PerfEventAttr(type=pmu, config=int(returns) << bit, sample_freq=1)  # here sample_period
    named = ctypes.create_string_buffer(os.fsencode(path))
    attr.bp_addr, attr.bp_len = ctypes.addressof(named), offset  # here uprobe_path and probe_offset
    # An event of every process has to be of a CPU, and yet comes on all of them to the program attached to it.
    return _open(attr, 0 if pid is None else _ANY_CPU, f"a probe on {name}", _EVERY_PROCESS if pid is None else pid)


def _open(attr: _PerfEventAttr, cpu: int, what: str, pid: int = _EVERY_PROCESS) -> int:
    machine = platform.machine()
    if machine not in _NR_PERF_EVENT_OPEN:
        raise KernelError(f"perf_event_open(2) has no known number on {machine}", "Use an x86-64 or arm64 machine")
    attr.size = ctypes.sizeof(_PerfEventAttr)
    no_group = ctypes.c_int(-1)
    fd = int(
        libc().syscall(
            _NR_PERF_EVENT_OPEN[machine],
            ctypes.byref(attr),
            ctypes.c_int(pid),
            ctypes.c_int(cpu),
            no_group,
            ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC),
        )
    )
    if fd < 0:
        raise load_error(f"{what} cannot be had", ctypes.get_errno())
    return fd
