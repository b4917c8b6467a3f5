# SPDX-License-Identifier: Apache-2.0
"""Of which host something is, in a trace that was joined from several: its numbers say so.

Each kernel numbers CPUs, threads, namespaces and objects on its own. Where traces are joined, the number of the host
goes above all bits that the kernel uses. Host 0, and the host of a trace of one, has the kernel's own numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

CPUS: Final = 1 << 10
THREADS: Final = 1 << 22  # PID_MAX_LIMIT, include/linux/threads.h
NAMESPACES: Final = 1 << 34
ADDRESSES: Final = 1 << 57  # those of kernels are negative, of up to 57 bits


def host_of_cpu(cpu: str) -> str:
    """Return the expression for the host of a CPU."""
    return _above(cpu, CPUS)


def host_of_thread(tid: str) -> str:
    """Return the expression for the host of a thread or a process; of 0, the idle tasks, it is 0."""
    return _above(tid, THREADS)


def host_of_netns(netns: str) -> str:
    """Return the expression for the host of a network namespace; of 0 it is 0."""
    return _above(netns, NAMESPACES)


def own_cpu(cpu: str) -> str:
    """Return the expression for what the host itself calls a CPU."""
    return f"({cpu} % {CPUS})"


def own_thread(tid: str) -> str:
    """Return the expression for what the host itself calls a thread or a process."""
    return f"({tid} % {THREADS})"


def cpu_step(trace: Trace) -> int:
    """Return a number above all CPUs of a trace: a time times this, plus a CPU, is one number for both."""
    if not trace.metadata.joined:
        return CPUS
    ((count,),) = trace.rows("SELECT count(*) FROM hosts")
    return CPUS << max(int(count) - 1, 0).bit_length()


def hosts(trace: Trace) -> dict[int, str]:
    """Return the hosts' numbers → names; of a trace of one host, nothing."""
    return {int(number): str(name) for number, name in trace.rows("SELECT host, name FROM hosts ORDER BY host")}


def _above(number: str, unit: int) -> str:
    # A division of integers is written differently by engines; this one has no rest.
    return f"CAST(({number} - {number} % {unit}) / {unit} AS SMALLINT)"
