# SPDX-License-Identifier: Apache-2.0
"""Perf events: the kernel's clock as something that programs hang on."""

from __future__ import annotations

import ctypes
import platform
from typing import Final

from hopscope.errors import KernelError
from hopscope.libbpf._abi import libc
from hopscope.libbpf._failure import load_error

# asm/unistd_64.h, asm-generic/unistd.h
_NR_PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241}
# include/uapi/linux/perf_event.h
_PERF_TYPE_SOFTWARE: Final = 1
_PERF_COUNT_SW_CPU_CLOCK: Final = 0
_PERF_FLAG_FD_CLOEXEC: Final = 8
_FREQ: Final = 1 << 10


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


def open_clock(cpu: int, hz: int) -> int:
    """Return the file descriptor of an event that comes so often a second while the CPU is not idle (``cpu-clock``).

    Raises
    ------
    LoadError
        The kernel refuses: the rate is above ``kernel.perf_event_max_sample_rate``, or a right is missing.
    """
    machine = platform.machine()
    if machine not in _NR_PERF_EVENT_OPEN:
        raise KernelError(f"perf_event_open(2) has no known number on {machine}", "Use an x86-64 or arm64 machine")
    attr = _PerfEventAttr(
        type=_PERF_TYPE_SOFTWARE,
        size=ctypes.sizeof(_PerfEventAttr),
        config=_PERF_COUNT_SW_CPU_CLOCK,
        sample_freq=hz,
        flags=_FREQ,
    )
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
        raise load_error(f"a clock of {hz} Hz on CPU {cpu} cannot be had", ctypes.get_errno())
    return fd
