# SPDX-License-Identifier: Apache-2.0
"""Stacks that the kernel side takes while networking runs: counted in bulk, named when they are shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.analysis.parts import PARTS
from hopscope.analysis.stacks import Stack, fold, merge, trimmed
from hopscope.bpf.layout import HOP_CPU_SAMPLE_DTYPE, HopCpuPart
from hopscope.collectors.kallsyms import KernelSymbols
from hopscope.libbpf import RingReader
from hopscope.probes.attach import attach_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hopscope.libbpf import BpfObject

_FRAME_BYTES: Final = 8
# Of a ring: what comes in half a second, and not less.
_LEAST_BYTES: Final = 1 << 18
_SLOT_BYTES: Final = 1024
# What each of a call's samples that the kernel side could not decide on is known by.
_DECIDERS: Final = (
    ("sock_sendmsg", "send"),
    ("inet_sendmsg", "send"),
    ("inet6_sendmsg", "send"),
    ("sock_recvmsg", "receive"),
    ("inet_recvmsg", "receive"),
    ("inet6_recvmsg", "receive"),
)

_BUSY_POLLS: Final = {"napi_busy_loop", "napi_busy_loop_rcu"}
_WORKERS: Final = {"io_wq_worker", "io_wqe_worker", "io_sq_thread"}
_SOFTIRQS: Final = {"handle_softirqs", "__do_softirq"}
_UNDECIDED: Final = "undecided"
_PARTS: Final = dict(enumerate(PARTS, start=HopCpuPart.HOP_CPU_IRQ)) | {int(HopCpuPart.HOP_CPU_UNDECIDED): _UNDECIDED}
_OF_THREADS: Final = {"busy_poll", "send", "receive", "io_uring", _UNDECIDED}

Array = np.ndarray[Any, np.dtype[Any]]


class RawStack(NamedTuple):
    """Part, group row and addresses (innermost first, as bytes of uint64)."""

    part: int
    group: int
    frames: bytes


class StackSampler:
    """Takes and counts stacks.

    Parameters
    ----------
    bpf
        The loaded object.
    hz
        How often a second each CPU is looked at.

    Raises
    ------
    KernelError
        The kernel refuses the rate, or a ring.
    """

    def __init__(self, bpf: BpfObject, hz: int) -> None:
        needed = max(hz * _SLOT_BYTES // 2, _LEAST_BYTES)
        self._reader = RingReader.per_cpu(bpf.maps["rings"], HOP_CPU_SAMPLE_DTYPE, 1 << (needed - 1).bit_length())
        # Under their names: an address may be another function's later.
        self._total: Counter[Stack] = Counter()
        self._recent: Counter[RawStack] = Counter()
        self._symbols = KernelSymbols()
        attach_clock(bpf.programs["cpu_sample"], hz)

    def drain(self) -> None:
        """Count what has come; to be called several times a second."""
        records = self._reader.read()
        self._recent.update(dict(_counted(records)))

    def interval(self, groups: Mapping[int, str]) -> list[Stack]:
        """Return what came since the last call; `groups` names the rows."""
        self.drain()
        recent, self._recent = self._recent, Counter()
        named = self._named(recent, groups)
        for stack in named:
            self._total[replace(stack, samples=0)] += stack.samples
        return named

    def total(self) -> list[Stack]:
        """Return what came since the start, as of the last :meth:`interval`."""
        return merge(replace(stack, samples=samples) for stack, samples in self._total.items())

    def close(self) -> None:
        """Unmap the rings, and forget the kernel's symbols."""
        self._reader.close()
        self._symbols.close()

    def _named(self, stacks: Counter[RawStack], groups: Mapping[int, str]) -> list[Stack]:
        width = max((len(stack.frames) for stack in stacks), default=0)
        padded = b"".join(stack.frames.ljust(width, b"\0") for stack in stacks)
        named = fold(
            np.frombuffer(padded, np.uint64).reshape(len(stacks), width // _FRAME_BYTES),
            [_PARTS[stack.part] for stack in stacks],
            [groups.get(stack.group, "") for stack in stacks],
            list(stacks.values()),
            self._symbols.names,
        )
        return decided(named)


def _counted(records: Array) -> Iterator[tuple[RawStack, int]]:
    """Yield each different stack of the records and how often it occurs."""
    if not len(records):
        return
    depth = np.maximum(records["len_bytes"], 0) // _FRAME_BYTES
    width = int(depth.max())
    frames = np.where(np.arange(width) < depth[:, None], records["frames"][:, :width], 0)
    # Multiplication by odd numbers loses nothing of a number, and their sum tells sequences apart.
    factors = (np.arange(1, width + 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    hashes = (frames ^ (frames >> np.uint64(29))) * factors[:width]
    keys = hashes.sum(axis=1, dtype=np.uint64)
    for column, factor in zip(("part", "group", "len_bytes"), factors[width:], strict=True):
        keys += records[column].astype(np.int64).view(np.uint64) * factor
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    for index, count in zip(first.tolist(), counts.tolist(), strict=True):
        content = frames[index, : depth[index]].tobytes()
        yield RawStack(int(records["part"][index]), int(records["group"][index]), content), count


def decided(stacks: list[Stack]) -> list[Stack]:
    """Return the kernel side's stacks, each in the part that it is of; those that are of none are left out."""
    parts = [_decided(stack) for stack in stacks]
    if all(part == stack.part for stack, part in zip(stacks, parts, strict=True)):
        return stacks
    return merge(
        Stack(part, trimmed(part, stack.frames), stack.samples, stack.group)
        for stack, part in zip(stacks, parts, strict=True)
        if part
    )


def _decided(stack: Stack) -> str:
    """Return the part of a stack, found by its functions where the kernel side could not tell yet; empty for none.

    None is what an interrupt does between its end and the softirqs that it runs then: the thread that it interrupts
    has not got on yet. The clock comes there more often than such moments are long, for it waited until then.
    """
    seen = set(stack.frames)
    if stack.part in _OF_THREADS and not seen.isdisjoint(_SOFTIRQS):
        return ""
    if stack.part in _OF_THREADS and not seen.isdisjoint(_BUSY_POLLS):
        return "busy_poll"  # the kernel side may tell only when a poll ends
    if stack.part != _UNDECIDED:
        return stack.part
    part = next((part for function, part in _DECIDERS if function in seen), "")
    return "io_uring" if part and not seen.isdisjoint(_WORKERS) else part
