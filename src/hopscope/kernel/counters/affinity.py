# SPDX-License-Identifier: Apache-2.0
"""Which CPUs an interrupt may go to and goes to, whose it is, and which NUMA node that and each CPU belongs to."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.kernel.counters.interrupts import interrupt_names
from hopscope.kernel.counters.sysfs import decimal
from hopscope.kernel.counters.text import parse_cpus, read
from hopscope.kernel.irqs import network_irqs
from hopscope.kernel.netlink import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said

_IRQ: Final = "/proc/irq"
_NODES: Final = Path("/sys/devices/system/node")
# Name of a reading by file of an interrupt: lists of CPUs.
_LISTS: Final = {"affinity": "smp_affinity_list", "effective_affinity": "effective_affinity_list"}


def interrupts() -> Iterator[Said]:
    """Yield the settings of each interrupt, and the NUMA node of each CPU (subject ``cpu 3``).

    ``interface`` is of the network namespace in which ``/sys`` was mounted.
    """
    interfaces = network_irqs()
    for number, subject in interrupt_names(read("/proc/interrupts")).items():
        for name, file in _LISTS.items():
            if (cpus := _text(number, file)) is not None:
                yield subject, name, cpus
        # The kernel says -1 where it does not know, and 4294967295 in old ones.
        if (node := decimal(_text(number, "node") or "-1")) in range(1 << 16):
            yield subject, "numa_node", node
        if number in interfaces:
            yield subject, "interface", printable(os.fsencode(interfaces[number]))
    for cpu, node in sorted(nodes_of_cpus().items()):
        yield f"cpu {cpu}", "numa_node", node


def nodes_of_cpus(nodes: Path = _NODES) -> dict[int, int]:
    """Return the NUMA node of each CPU; nothing of a kernel without NUMA."""
    found: dict[int, int] = {}
    for folder in nodes.glob("node[0-9]*"):
        text = (folder / "cpulist").read_bytes()
        if text.strip():  # a node may have memory alone
            found |= dict.fromkeys(parse_cpus(text), decimal(folder.name.removeprefix("node")))
    return found


def _text(number: int, file: str) -> str | None:
    """Return what a file of an interrupt says, None where it is gone or not of this kernel."""
    try:
        return printable(read(f"{_IRQ}/{number}/{file}").strip())
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EIO, errno.EINVAL}:
            return None
        raise
