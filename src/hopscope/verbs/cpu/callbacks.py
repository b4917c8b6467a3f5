# SPDX-License-Identifier: Apache-2.0
"""Tells the kernel side which functions of timers, tasklets and work items are the network's."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hopscope.kernel.kallsyms import KALLSYMS, MODULES
from hopscope.model.callbacks import CALLBACK_LINE

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.libbpf import BpfObject


class Callbacks:
    """Keeps the addresses of :data:`~hopscope.model.callbacks.CALLBACKS` in the kernel side's table.

    Functions of a module that is loaded later are added at the next look; what they ran before is not counted.

    Parameters
    ----------
    bpf
        The loaded object.
    kallsyms, modules
        The kernel's lists of its symbols and of its modules.
    """

    def __init__(self, bpf: BpfObject, kallsyms: Path = KALLSYMS, modules: Path = MODULES) -> None:
        self._table = bpf.maps["callbacks"]
        # It stays open: the kernel decides at opening whether it shows addresses.
        self._symbols = kallsyms.open("rb", buffering=0)
        self._modules = modules
        self._said: bytes | None = None
        self._loaded: set[bytes] | None = None
        self._known: set[int] = set()
        self.look()

    @property
    def hidden(self) -> bool:
        """Whether the kernel hides the addresses, so that nothing of this can be counted."""
        return not self._known

    def look(self) -> None:
        """Add what came with new modules, and take out what went; to be called several times a second."""
        said = self._modules.read_bytes() if self._modules.exists() else b""
        if said == self._said:
            return
        self._said = said
        loaded = _listed(said)
        if loaded == self._loaded:
            return
        self._loaded = loaded
        self._symbols.seek(0)
        found = {int(address, 16) for address in CALLBACK_LINE.findall(self._symbols.readall())} - {0}
        for address in self._known - found:
            self._table.delete(_key(address))
        for address in found - self._known:
            self._table.update(_key(address), b"\1")
        self._known = found

    def close(self) -> None:
        """Close the kernel's list; idempotent."""
        self._symbols.close()


def _listed(modules: bytes) -> set[bytes]:
    """Return the modules, each by its name, its size and where it is: others may take the place of one."""
    lines = (line.split() for line in modules.splitlines())
    return {b" ".join((*line[:2], *line[5:6])) for line in lines}


def _key(address: int) -> bytes:
    return struct.pack("=Q", address)
