# SPDX-License-Identifier: Apache-2.0
"""Stacks that the kernel side takes while networking runs, named and counted in bulk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.bpf.layout import HOP_CPU_SAMPLE_DTYPE, HopCpuPart
from hopscope.kernel.kallsyms import KernelSymbols
from hopscope.libbpf import RingReader
from hopscope.model.parts import PARTS
from hopscope.model.stack_parts import BUSY_POLLS, IO_WORKERS, SOFTIRQS, part_of_call, part_of_stack
from hopscope.model.stacks import Stack, trimmed
from hopscope.probes.attach import attach_clock
from hopscope.verbs.cpu.folding import Folding, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject

_FRAME_BYTES: Final = 8
# Of a ring: what comes in half a second, and not less.
_LEAST_BYTES: Final = 1 << 18
_SLOT_BYTES: Final = 1024
# A ring that is so full is emptied, or so long before it is full: a look at it is never that late.
_WORTH: Final = 1 / 4
_BEFORE_S: Final = 4.0
# Samples that may wait for being folded.
_MOST_WAITING: Final = 1 << 13
_UNDECIDED: Final = "undecided"
_PARTS: Final = dict(enumerate(PARTS, start=HopCpuPart.HOP_CPU_IRQ)) | {int(HopCpuPart.HOP_CPU_UNDECIDED): _UNDECIDED}
_OF_THREADS: Final = {"workqueue", "busy_poll", "send", "receive", "control", "io_uring", _UNDECIDED}

Array = np.ndarray[Any, np.dtype[Any]]


class _Batch(NamedTuple):
    """Samples that are not folded yet: addresses (shape (n, frames), zeros behind the outermost), part, group row."""

    addresses: NDArray[np.uint64]
    parts: NDArray[np.uint16]
    groups: NDArray[np.uint16]


class StackSampler:
    """Takes and counts stacks.

    Parameters
    ----------
    bpf
        The loaded object.
    hz
        How often a second each CPU is looked at.
    alone
        Whether nothing else is attached: then functions alone tell the part of a stack.

    Raises
    ------
    KernelError
        The kernel refuses the rate, or a ring.
    """

    def __init__(self, bpf: BpfObject, hz: int, *, alone: bool = False) -> None:
        size_bytes = 1 << (max(hz * _SLOT_BYTES // 2, _LEAST_BYTES) - 1).bit_length()
        self._reader = RingReader.per_cpu(bpf.maps["rings"], HOP_CPU_SAMPLE_DTYPE, size_bytes)
        self._worth = max(_WORTH, 1 - hz * _SLOT_BYTES * _BEFORE_S / size_bytes)
        attach_clock(bpf.programs["cpu_sample_alone" if alone else "cpu_sample"], hz)
        # Behind it, for its links are a change of what is attached, which may have the symbols read again.
        self._symbols = KernelSymbols()
        self._folding = Folding(
            self._symbols, lambda part, frames: seen_alone(frames) if alone else seen_as(_PARTS[part], frames)
        )
        self._waiting: list[_Batch] = []
        self._recent: Counter[tuple[Seen, int]] = Counter()
        # By the groups' labels: their rows may be given to others.
        self._total: Counter[tuple[Seen, str]] = Counter()
        self._reader.read()  # what came before the start

    def drain(self) -> None:
        """Fetch what has come, if it takes up much of a ring; to be called several times a second."""
        if self._reader.fullness() >= self._worth:
            self._fetch()

    def _fetch(self) -> None:
        records = self._reader.read()
        if len(records):
            self._waiting.append(_batch(records))
        if sum(len(batch.parts) for batch in self._waiting) > _MOST_WAITING:
            self._fold()

    def interval(self, groups: Mapping[int, str]) -> list[Stack]:
        """Return what came since the last call, equal stacks as one each; `groups` names the rows."""
        self._fetch()
        self._fold()
        named: Counter[tuple[Seen, str]] = Counter()
        for (seen, group), samples in self._recent.items():
            named[seen, groups.get(group, "")] += samples
        self._recent.clear()
        self._total.update(named)
        return _stacks(named)

    def total(self) -> list[Stack]:
        """Return what came since the start, as of the last :meth:`interval`."""
        return _stacks(self._total)

    def close(self) -> None:
        """Unmap the rings, and forget the kernel's symbols."""
        self._reader.close()
        self._symbols.close()

    def _fold(self) -> None:
        """Name and count what waits; all at once, since little and much of it take nearly as long."""
        if not self._waiting:
            return
        depth = max(batch.addresses.shape[1] for batch in self._waiting)
        addresses = np.zeros((sum(len(batch.parts) for batch in self._waiting), depth), np.uint64)
        start = 0
        for batch in self._waiting:
            end, width = start + len(batch.parts), batch.addresses.shape[1]
            addresses[start:end, :width] = batch.addresses
            start = end
        _, parts, groups = zip(*self._waiting, strict=True)
        self._waiting = []
        self._recent.update(self._folding.fold(addresses, np.concatenate(parts), np.concatenate(groups)))


def _batch(records: Array) -> _Batch:
    """Return what is used of the records, apart from the ring's."""
    depth = np.maximum(records["len_bytes"], 0) // _FRAME_BYTES
    width = int(depth.max())
    addresses = np.where(np.arange(width) < depth[:, None], records["frames"][:, :width], 0)
    return _Batch(addresses, records["part"].copy(), records["group"].copy())


def _stacks(counts: Mapping[tuple[Seen, str], int]) -> list[Stack]:
    return [Stack(part, frames, samples, group) for ((part, frames), group), samples in counts.items()]


def seen_as(part: str, frames: tuple[str, ...]) -> Seen | None:
    """Return what a stack of the kernel side is counted as: the part that it is of, and from where it is of it."""
    frames = trimmed(part, frames)
    decided = _decided(part, frames)
    return (decided, trimmed(decided, frames)) if decided else None


def seen_alone(frames: tuple[str, ...]) -> Seen | None:
    """Return what a stack is counted as of which the kernel side told no part; None: it is not networking."""
    part = part_of_stack(frames)
    return (part, trimmed(part, frames)) if part else None


def _decided(part: str, frames: tuple[str, ...]) -> str:
    """Return the part of a stack, found by its functions where the kernel side could not tell yet; empty for none.

    None is what an interrupt does between its end and the softirqs that it runs then: the thread that it interrupts
    has not got on yet. The clock comes there more often than such moments are long, for it waited until then.
    """
    seen = set(frames)
    if part in _OF_THREADS and not seen.isdisjoint(SOFTIRQS):
        return ""
    if part in _OF_THREADS and not seen.isdisjoint(BUSY_POLLS):
        return "busy_poll"  # the kernel side may tell only when a poll ends
    if part != _UNDECIDED:
        return part
    found = part_of_call(frames)
    if found not in {"send", "receive"}:
        return ""  # the kernel side does not charge what else io_uring does
    return found if seen.isdisjoint(IO_WORKERS) else "io_uring"
