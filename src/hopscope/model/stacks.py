# SPDX-License-Identifier: Apache-2.0
"""Samples of kernel stacks, equal ones counted together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.model.parts import PARTS
from hopscope.model.stack_parts import BUSY_POLLS, SOFTIRQS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ORDER: Final = {part: number for number, part in enumerate(PARTS)}
_SOFTIRQ: Final = tuple(SOFTIRQS)
_SYSCALL: Final = ("do_syscall_64", "do_el0_svc", "el0_svc_common", "do_fast_syscall_32", "do_int80_emulation")
# Where a part begins. What is outside of it was interrupted, or led there, and is not what the part spends its time on.
_ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "irq": ("common_interrupt", "__common_interrupt", "do_IRQ", "el1_interrupt", "el0_interrupt", "gic_handle_irq"),
    "net_rx": _SOFTIRQ,
    "net_tx": _SOFTIRQ,
    "timer": _SOFTIRQ,
    "tasklet": _SOFTIRQ,
    "ksoftirqd": ("run_ksoftirqd",),
    "napi_thread": ("napi_threaded_poll",),
    "workqueue": ("process_one_work",),
    "busy_poll": tuple(BUSY_POLLS),
    "send": _SYSCALL,
    "receive": _SYSCALL,
    "control": _SYSCALL,
    "io_uring": ("io_wq_worker", "io_sq_thread", *_SYSCALL),
}


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack, and how often it was seen.

    Attributes
    ----------
    part
        What the CPU did for networking, one of :data:`~hopscope.model.parts.PARTS`.
    frames
        Names of kernel functions, the outermost first; ``0x…`` for an address without a name.
    samples
        How often.
    group
        Label of the group, empty where nothing is grouped.
    """

    part: str
    frames: tuple[str, ...]
    samples: int
    group: str = ""

    def path(self) -> tuple[str, ...]:
        """Return part, group (where there is one) and frames: the way from the root of a tree of stacks."""
        return (self.part, self.group, *self.frames) if self.group else (self.part, *self.frames)


def merge(stacks: Iterable[Stack]) -> list[Stack]:
    """Return equal stacks as one each, by part (in the order of :func:`part_order`), group and frames."""
    # Tuples: to make and hash a dataclass takes several times as long.
    counts: Counter[tuple[tuple[int, str], str, tuple[str, ...]]] = Counter()
    for stack in stacks:
        counts[part_order(stack.part), stack.group, stack.frames] += stack.samples
    return [Stack(part, frames, samples, group) for ((_, part), group, frames), samples in sorted(counts.items())]


def part_order(part: str) -> tuple[int, str]:
    """Return what parts are sorted by: as they are shown; those that are unknown come last."""
    return _ORDER.get(part, len(_ORDER)), part


def trimmed(part: str, frames: tuple[str, ...]) -> tuple[str, ...]:
    """Return the frames from the innermost entry of the part on; all where none is among them."""
    entries = _ENTRIES.get(part, ())
    for place in range(len(frames) - 1, -1, -1):
        if frames[place] in entries:
            return frames[place:]
    return frames
