# SPDX-License-Identifier: Apache-2.0
"""The stacks and addresses of drops, and of functions' callers, named while the kernel that has them is at hand."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopRecordLimits
from hopscope.errors import PrivilegeError
from hopscope.kernel.kallsyms import KernelSymbols
from hopscope.kernel.source_lines import SourceLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.libbpf import Map

Array = np.ndarray[Any, np.dtype[Any]]

# Different stacks that are told apart.
STACKS: Final = 16384
# What the kernel calls to run our program, and the program: the innermost frames.
_OURS: Final = ("bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_trampoline_")


class DropPlaces:
    """Names each address and each stack once.

    Parameters
    ----------
    stacks
        The map of stacks.
    """

    def __init__(self, stacks: Map) -> None:
        self._stacks = stacks
        self._known_stacks: set[int] = set()
        self._known_addresses: set[int] = set()
        try:
            self._symbols: KernelSymbols | None = KernelSymbols()
            begin = self._symbols.address("_stext")
        except (PrivilegeError, OSError):
            self._symbols = begin = None  # then addresses stay numbers
        self._lines = SourceLines(begin) if begin else None
        self._asked: set[int] = set()

    def notes(self) -> list[str]:
        """Return a sentence on why there are no names, if so."""
        said = "functions that drop packets have no names: the kernel hides their addresses (CAP_SYSLOG shows them)"
        return [] if self._symbols else [said]

    def close(self) -> None:
        """Close the kernel's list of symbols."""
        if self._lines:
            self._lines.close()
        if self._symbols:
            self._symbols.close()

    def rows(self, drops: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows of ``stacks`` and ``symbols`` that these rows of ``drops`` need and that are new."""
        yield from self.stacks(drops["stack"])
        yield from self.symbols(drops["location"])
        if self._lines and self._symbols:
            fresh = np.array(sorted({*np.unique(drops["location"]).tolist()} - self._asked), np.int64)
            self._asked.update(fresh.tolist())
            # Modules have debug information of their own.
            self._lines.ask(fresh[self._symbols.lasting(fresh.view(np.uint64))].view(np.uint64).tolist())

    def lines(self, wait_s: float = 0) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows of ``lines`` that were found since the last call; wait so long for what is not found yet."""
        if self._lines and (found := self._lines.found(wait_s)):
            addresses = np.array(list(found), np.uint64).view(np.int64)
            yield "lines", {"address": addresses, "source": np.array(list(found.values()), object)}

    def stacks(self, stacks: Array) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows of ``stacks`` and ``symbols`` that these stacks need and that are new."""
        frames = [(stack, self._frames(stack)) for stack in self._fresh_stacks(stacks)]
        if not frames:
            return
        addresses = np.concatenate([found for _, found in frames])
        yield (
            "stacks",
            {
                "stack": np.concatenate([np.full(len(found), stack, np.int32) for stack, found in frames]),
                "depth": np.concatenate([np.arange(len(found), dtype=np.int16) for _, found in frames]),
                "address": addresses,
            },
        )
        yield from self.symbols(addresses)

    def symbols(self, addresses: Array) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows of ``symbols`` that these addresses need and that are new."""
        fresh = np.array(sorted({*np.unique(addresses).tolist()} - self._known_addresses - {0}), np.int64)
        if len(fresh) and self._symbols:
            self._known_addresses.update(fresh.tolist())
            unsigned = fresh.view(np.uint64)
            names = np.array(self._symbols.names(unsigned), object)
            offsets = self._symbols.offsets(unsigned).astype(np.int32)
            yield "symbols", {"address": fresh, "name": names, "offset_bytes": offsets}

    def _fresh_stacks(self, stacks: Array) -> list[int]:
        fresh = sorted({stack for stack in np.unique(stacks).tolist() if stack >= 0} - self._known_stacks)
        self._known_stacks.update(fresh)
        return fresh

    def _frames(self, stack: int) -> Array:
        raw = self._stacks.lookup(struct.pack("=I", stack)) or b""
        frames = np.frombuffer(raw, np.int64)[: HopRecordLimits.HOP_DROP_FRAMES]
        found: Array = frames[frames != 0]
        if self._symbols:
            names = self._symbols.names(found.view(np.uint64))
            ours = next((depth for depth, name in enumerate(names) if not str(name).startswith(_OURS)), len(found))
            found = found[ours:]
        return found
