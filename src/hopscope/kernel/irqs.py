# SPDX-License-Identifier: Apache-2.0
"""Which hard interrupts belong to network devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

# A virtual device on a bus of its own (virtio) has its interrupts at the device below it.
_LEVELS: Final = 2


def network_irqs(root: Path = Path("/")) -> dict[int, str]:
    """Return the interface that each hard interrupt of a network device belongs to, by the interrupt's number.

    Found by the device's folder in sysfs, and by the names that drivers give their interrupts. Devices are those that
    sysfs shows: of the network namespace in which it was mounted.

    Parameters
    ----------
    root
        The folder that has ``sys`` and ``proc``.
    """
    found: dict[int, str] = {}
    named = _names(root / "proc/interrupts")
    for link in sorted((root / "sys/class/net").glob("*/device")):
        interface, device = link.parent.name, link.resolve()
        owners = {interface, device.name}
        numbers = _of_device(device) or {
            irq for irq, users in named.items() if any(_is_of(user, owners) for user in users)
        }
        found |= dict.fromkeys(numbers, interface)
    return found


def _of_device(device: Path) -> set[int]:
    for folder in (device, *device.parents)[:_LEVELS]:
        numbers = {int(each.name) for each in (folder / "msi_irqs").glob("*")}
        if numbers:
            return numbers
    return set()


def _names(interrupts: Path) -> dict[int, list[str]]:
    """Return the names of those that asked for each numbered interrupt: several share it."""
    names = {}
    for line in interrupts.read_text().splitlines()[1:]:
        number, _, rest = line.partition(":")
        if number.strip().isdigit() and rest.split():
            *others, last = rest.split(", ")
            # Two blanks stand before the first one.
            names[int(number)] = [each.rpartition("  ")[2] for each in others] + last.split()[-1:]
    return names


def _is_of(name: str, owners: AbstractSet[str]) -> bool:
    """Tell whether an interrupt is called as one of these, or as a part of one: ``eth0``, ``eth0-rx-1``."""
    return any(name == owner or name.startswith((f"{owner}-", f"{owner}:", f"{owner}.")) for owner in owners)
