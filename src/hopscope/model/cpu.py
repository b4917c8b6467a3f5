# SPDX-License-Identifier: Apache-2.0
"""What networking took from the processors: the results of ``cpu``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopscope.model.breakdown import Share, breakdown, wilson
from hopscope.model.parts import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.snapshot import Kind, Overhead, PlanRow
    from hopscope.model.stacks import Stack


@dataclass(frozen=True, slots=True)
class Counted:
    """What the processors' hardware counters counted; None where there is no such counter."""

    cycles: int | None
    instructions: int | None
    cache_misses: int | None

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            _sum(self.cycles, other.cycles),
            _sum(self.instructions, other.instructions),
            _sum(self.cache_misses, other.cache_misses),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True)
class Part:
    """What one part took.

    Attributes
    ----------
    ns
        Time on a CPU.
    runs
        Interrupts, softirqs, polls of a thread, or calls, that ended or began in this time.
    packets
        That were polled from devices, as the driver hands them over.
    len_bytes
        That calls took or gave.
    counted
        By hardware counters in that time; None where they were not asked for.
    samples
        That fell in this part, where samples alone tell it: `ns` is what they stand for, and nothing was counted.
    """

    ns: int
    runs: int
    packets: int
    len_bytes: int
    counted: Counted | None = None
    samples: int = 0

    def __add__(self, other: Part) -> Part:
        return Part(
            self.ns + other.ns,
            self.runs + other.runs,
            self.packets + other.packets,
            self.len_bytes + other.len_bytes,
            self.counted + other.counted if self.counted and other.counted else self.counted or other.counted,
            self.samples + other.samples,
        )

    @property
    def seen(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.ns or self.runs or self.samples)


NO_PART: Final = Part(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One CPU, process, cgroup or interface: grouping key → value (empty: all of them), part → what it took."""

    group: dict[str, str]
    parts: dict[str, Part]

    @property
    def ns(self) -> int:
        """Time of all parts."""
        return sum(part.ns for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """All that ``cpu`` found in one interval, or in the whole run.

    Attributes
    ----------
    kind
        ``interval`` or ``total``.
    started_ns
        CLOCK_REALTIME at the beginning, for display alone.
    duration_s
        Length by CLOCK_MONOTONIC.
    cpus
        That were online.
    total
        Of all CPUs.
    rows
        By the grouping, busiest first.
    hz
        How often a second each CPU's stack was looked at; 0: never.
    stacks
        What was seen then, in networking alone.
    lost
        Stacks for which there was no room.
    energy_j
        What all processors' packages took in this time, None where the machine does not say.
    notes
        Sentences for the user.
    ticks
        How often the CPUs were looked at, where times are known by samples alone; 0: they are exact.
    """

    kind: Kind
    started_ns: int
    duration_s: float
    cpus: int
    total: CpuRow
    rows: list[CpuRow]
    overhead: Overhead
    hz: int = 0
    stacks: list[Stack] = field(default_factory=list)
    lost: int = 0
    energy_j: float | None = None
    plan: list[PlanRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ticks: int = 0

    def breakdown(self) -> list[Share]:
        """Return what the kernel was busy with in each part, by its stacks; empty where they were not looked at."""
        if not self.hz:
            return []
        exact_ns = {name: part.ns for name, part in self.total.parts.items()}
        return breakdown(self.stacks, exact_ns, self.own_programs)

    @property
    def own_programs(self) -> tuple[str, ...]:
        """Names of the BPF programs that measure."""
        return tuple(program.name for program in self.overhead.by_program)

    def bounds_ns(self, samples: int, *, of_one_cpu: bool = False) -> tuple[int, int]:
        """Return what the time that so many samples stand for may be with 95 % confidence, in ns.

        Wilson's interval (:func:`~hopscope.model.breakdown.wilson`), as if samples were independent of each other.

        Parameters
        ----------
        of_one_cpu
            Whether they are samples of one CPU; else of all.
        """
        cpus = 1 if of_one_cpu else self.cpus
        ticks = max(round(self.hz * self.duration_s * cpus), samples)
        low, high = wilson(samples, ticks)
        whole_ns = self.duration_s * 1e9 * cpus
        return round(low * whole_ns), round(high * whole_ns)

    def cores(self, ns: int) -> float:
        """Return a time as a part of one CPU's time."""
        return ns / (self.duration_s * 1e9) if self.duration_s else 0.0


def added(rows: Iterable[CpuRow]) -> dict[str, Part]:
    """Return the parts of all rows, added up."""
    result = dict.fromkeys(PARTS, NO_PART)
    for row in rows:
        for name, part in row.parts.items():
            result[name] += part
    return result
