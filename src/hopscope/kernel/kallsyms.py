# SPDX-License-Identifier: Apache-2.0
"""The running kernel's functions: its own text is read once, what comes and goes (modules, BPF) when it may have."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.kernel.symbols import Symbols
from hopscope.libbpf import function_lengths, link_ids, program_ids

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

KALLSYMS: Final = Path("/proc/kallsyms")
MODULES: Final = Path("/proc/modules")
_CHUNK_BYTES: Final = 1 << 20
# What the kernel generates: programs, whose lengths it tells, and trampolines and the like, each in a page of its own.
_GENERATED: Final = re.compile(rb"^([0-9a-f]+) \S \S+\t\[(?:bpf|__builtin__\w+)\]$", re.MULTILINE)


class _State(NamedTuple):
    """Lines of modules, numbers of programs and of links (with which trampolines come and go)."""

    modules: tuple[bytes, ...]
    programs: tuple[int, ...]
    links: tuple[int, ...]


class KernelSymbols:
    """Names of kernel functions by address, right for as long as it is open.

    The file stays open: the kernel decides at opening whether addresses are shown, so it may be read on after rights
    are dropped.

    Parameters
    ----------
    kallsyms, modules
        The kernel's lists of its symbols and of its modules.

    Raises
    ------
    PrivilegeError
        The kernel hides the addresses.
    OSError
        There is no such file, or it cannot be read.
    """

    def __init__(self, kallsyms: Path = KALLSYMS, modules: Path = MODULES) -> None:
        self._modules = modules
        self._file = os.open(kallsyms, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._state = _look(modules)
            text = self._read(0)
            self._others_start = _others_start(text)
            self._core = Symbols(text[: self._others_start])
            self._others = self._come_and_go(text[self._others_start :])
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """Return the name of the function at each address, ``0x…`` where none is known.

        Addresses outside of the kernel's own text are looked up in a list that is read anew if what they are in is new,
        or may be something else by now. That takes some 40 ms of a CPU, for the kernel goes through all of its symbols.
        A program that is gone by then has no name; where the kernel does not tell the lengths of programs (it does to
        CAP_SYS_ADMIN), it may get the name of the one before it in memory.
        """
        in_core = self._core.covers(addresses)
        if in_core.all():
            return self._core.names(addresses)
        self._refresh(addresses[~in_core])
        names = np.empty(len(addresses), object)
        names[in_core] = self._core.names(addresses[in_core])
        names[~in_core] = self._others.names(addresses[~in_core])
        return list(names)

    def offsets(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return how far behind the begin of its function each address is, of those last named; -1: in none."""
        in_core = self._core.covers(addresses)
        return np.where(in_core, self._core.offsets(addresses), self._others.offsets(addresses))

    def address(self, name: str) -> int | None:
        """Return where a symbol of the kernel itself is; None where there is none of this name."""
        return self._core.address(name)

    def lasting(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell which addresses are in the kernel's own text, where nothing comes or goes."""
        return self._core.covers(addresses)

    def _refresh(self, addresses: NDArray[np.uint64]) -> None:
        """Read anew what comes and goes, if that may name one of the addresses, or name it otherwise."""
        state = _look(self._modules)
        if state is None or self._state is None or self._may_differ(addresses, self._state, state):
            self._state = state
            self._others = self._come_and_go(self._read(self._others_start))

    def _may_differ(self, addresses: NDArray[np.uint64], read: _State, state: _State) -> bool:
        # What the kernel does not list, such as the filters of seccomp, is met again and again, and is no change.
        if state == read:
            return False
        if state.modules != read.modules or not self._others.covers(addresses).all():
            return True
        gone = set(read.programs).difference(state.programs)
        return any(_within(addresses, each) for each in (self._of_none, *(self._lengths[number] for number in gone)))

    def _come_and_go(self, text: bytes) -> Symbols:
        """Return modules and BPF, with the lengths of programs: between two there may be one that is gone."""
        if self._state is None:
            return Symbols(text)
        self._lengths = {number: function_lengths([number]) for number in self._state.programs}
        of_programs = dict(pair for lengths in self._lengths.values() for pair in lengths.items())
        generated = {int(address, 16) for address in _GENERATED.findall(text)}
        self._of_none = dict.fromkeys(generated.difference(of_programs), mmap.PAGESIZE)
        return Symbols(text, self._of_none | of_programs)

    def _read(self, start: int) -> bytes:
        os.lseek(self._file, start, os.SEEK_SET)
        chunks = []
        while chunk := os.read(self._file, _CHUNK_BYTES):
            chunks.append(chunk)
        return b"".join(chunks)


def _others_start(text: bytes) -> int:
    """Return where the lines with a module begin: the kernel's own come first, and never change."""
    first = text.find(b"\t[")
    return len(text) if first < 0 else text.rfind(b"\n", 0, first) + 1


def _look(modules: Path) -> _State | None:
    """Return what tells one state of modules and of BPF from another; None where that is not to be had."""
    programs, links = program_ids(), link_ids()
    if programs is None or links is None:
        return None
    lines = modules.read_bytes().splitlines() if modules.exists() else []
    return _State(tuple(_without_counts(line) for line in lines), programs, links)


def _within(addresses: NDArray[np.uint64], lengths: Mapping[int, int]) -> bool:
    """Tell whether any address is in one of the functions."""
    return any(bool(((addresses >= start) & (addresses < start + length)).any()) for start, length in lengths.items())


def _without_counts(module: bytes) -> bytes:
    """Return a line of ``/proc/modules`` without its users, who change all the time: name, size, state, address."""
    fields = module.split()
    return b" ".join(fields[:2] + fields[4:6])
