# SPDX-License-Identifier: Apache-2.0
"""What the host's processors, memory and clock say."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.counters.text import lines_of, number, read, read_if_there, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said

# fs/proc/stat.c. Older kernels have fewer, newer ones may add some at the end.
_TICKS: Final = (
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice",
)  # fmt: skip

# Of /proc/meminfo what the network lives on, or is the cause of.
_MEMORY: Final = frozenset({
    "MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Shmem", "SwapTotal", "SwapFree", "Dirty", "AnonPages",
    "Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu", "CommitLimit", "Committed_AS",
})  # fmt: skip

# irq takes CONFIG_IRQ_TIME_ACCOUNTING.
_PRESSURES: Final = ("cpu", "memory", "io", "irq")
_PRESSURE: Final = re.compile(rb"(some|full) avg10=(\d+)\.(\d\d) .*\btotal=(\d+)", re.ASCII)

_CLOCK: Final = "/sys/devices/system/clocksource/clocksource0"
_TSC_FLAGS: Final = ("constant_tsc", "nonstop_tsc", "tsc_reliable", "tsc_known_freq")


def cpu() -> Iterator[Said]:
    """Yield the ticks of each CPU that is online, by what it did (``/proc/stat``), and how long a tick is."""
    yield "", "ticks_per_second", os.sysconf("SC_CLK_TCK")
    yield from parse_stat(read("/proc/stat"))


def parse_stat(text: bytes) -> Iterator[Said]:
    """Yield the ticks of each CPU.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    lines = lines_of(text)
    if not lines[-1].startswith(b"softirq "):
        raise FormatError("it does not end as it should")
    seen = set()
    for line in lines:
        label, *ticks = line.split(b" ")
        index = label.removeprefix(b"cpu")
        if label == index or not index:
            continue  # the sum of all is on a line of its own
        subject = f"cpu {number(index)}"
        if len(ticks) < _TICKS.index("steal") or subject in seen:
            raise FormatError(f"{line[:40]!r} is not a CPU's time")
        seen.add(subject)
        for name, value in zip(_TICKS, ticks, strict=False):
            yield subject, name, number(value)
    if not seen:
        raise FormatError("it names no CPU")


def memory() -> Iterator[Said]:
    """Return figures of ``/proc/meminfo``, in kB of 1,024 bytes: ``MemAvailable_kB``."""
    return parse_meminfo(read("/proc/meminfo"))


def parse_meminfo(text: bytes) -> Iterator[Said]:
    """Yield the figures that matter to the network.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    seen = set()
    for line in lines_of(text):
        label, colon, rest = line.partition(b":")
        name = shown(label)
        if not colon:
            raise FormatError(f"{line[:40]!r} is not a name and a value")
        if name in _MEMORY:
            value, *unit = rest.split() or [b""]
            if unit != [b"kB"]:
                raise FormatError(f"{name} is not in kB")
            seen.add(name)
            yield "", f"{name}_kB", number(value)
    if not {"MemTotal", "MemAvailable", "Slab", "Percpu"} <= seen:
        raise FormatError("it is only the beginning")


def pressure() -> Iterator[Said]:
    """Yield how long some or all tasks waited for CPU, memory or devices (``Documentation/accounting/psi.rst``).

    ``memory.some.total_us`` counts; ``memory.some.avg10_per_10000`` is the share of the last 10 seconds.
    """
    found = False
    for resource in _PRESSURES:
        text = read_if_there(f"/proc/pressure/{resource}")
        if text is not None:
            found = True
            yield from parse_pressure(text, resource)
    if not found:
        read("/proc/pressure/cpu")  # says what is missing


def parse_pressure(text: bytes, resource: str) -> Iterator[Said]:
    """Yield what a file below ``/proc/pressure`` says.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    for line in lines_of(text):
        said = _PRESSURE.fullmatch(line)
        if not said:
            raise FormatError(f"{line[:40]!r} is not a pressure")
        name = f"{resource}.{said[1].decode()}"
        yield "", f"{name}.total_us", number(said[4])
        yield "", f"{name}.avg10_per_10000", number(said[2] + said[3])


def clock() -> Iterator[Said]:
    """Yield which clock the kernel uses and could use, and on x86 what the processor promises of its own.

    A clock that is not read in user space, or only slowly, makes every time stamp dear.
    """
    for name in ("current_clocksource", "available_clocksource"):
        yield "", name, shown(b" ".join(read(f"{_CLOCK}/{name}").split()))
    flags = parse_flags(_first_processor())
    if "tsc" in flags:
        for name in _TSC_FLAGS:
            yield "", name, int(name in flags)


def parse_flags(text: bytes) -> frozenset[str]:
    """Return the flags of the first processor of ``/proc/cpuinfo``; none where it has no such line."""
    found = re.search(rb"^flags[ \t]*:(.*)\n", text, re.MULTILINE)
    return frozenset(map(shown, found[1].split())) if found else frozenset()


def _first_processor() -> bytes:
    # All processors say the same, and some hosts have hundreds.
    fd = os.open("/proc/cpuinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 14)
    finally:
        os.close(fd)
