# SPDX-License-Identifier: Apache-2.0
"""The host of an object in a joined trace, encoded in its number.

Each kernel numbers CPUs, threads, namespaces and objects independently. In a joined trace, the number of the host is
added above all bits that the kernel uses. Host 0, and the host of a single trace, keeps the kernel's numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.schema import HOST_UNITS

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

CPUS: Final = HOST_UNITS["cpu"]
THREADS: Final = HOST_UNITS["tid"]
NAMESPACES: Final = HOST_UNITS["netns"]
ADDRESSES: Final = 1 << 57  # those of kernels are negative, of up to 57 bits


def host_of_cpu(cpu: str) -> str:
    """Return the expression for the host of a CPU."""
    return _above(cpu, CPUS)


def host_of_thread(tid: str) -> str:
    """Return the expression for the host of a thread or process; 0 for the idle tasks."""
    return _above(tid, THREADS)


def host_of_netns(netns: str) -> str:
    """Return the expression for the host of a network namespace; 0 for namespace 0."""
    return _above(netns, NAMESPACES)


def own_cpu(cpu: str) -> str:
    """Return the expression for the host's own number of a CPU."""
    return f"({cpu} % {CPUS})"


def own_thread(tid: str) -> str:
    """Return the expression for the host's own number of a thread or process."""
    return f"({tid} % {THREADS})"


def cpu_step(trace: Trace) -> int:
    """Return a number greater than all CPUs of a trace, so that time * number + CPU encodes both."""
    if not trace.metadata.joined:
        return CPUS
    ((count,),) = trace.rows("SELECT count(*) FROM hosts")
    return CPUS << max(int(count) - 1, 0).bit_length()


def hosts(trace: Trace) -> dict[int, str]:
    """Return host number → name; empty for a trace of one host."""
    return {int(number): str(name) for number, name in trace.rows("SELECT host, name FROM hosts ORDER BY host")}


def _above(number: str, unit: int) -> str:
    return f"CAST({number} // {unit} AS SMALLINT)"
