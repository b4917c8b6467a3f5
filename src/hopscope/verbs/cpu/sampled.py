# SPDX-License-Identifier: Apache-2.0
"""CPU cost by samples alone: nothing is attached but the clock, and the stack tells the part.

Each sample stands for the same time: the CPUs' time, divided by how often they were looked at.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.kernel.capabilities import TO_TRACE
from hopscope.libbpf import online_cpus, possible_cpus
from hopscope.live.attached import Attached
from hopscope.live.budget import READING_TAKES_IT
from hopscope.live.labels import NOT_KNOWN, Labels
from hopscope.live.session import Session
from hopscope.model.cpu import NO_PART, CpuRow, CpuSnapshot, Part, added
from hopscope.model.parts import PARTS
from hopscope.probes.catalogue import POINTS
from hopscope.probes.resolve import Plan, Resolver
from hopscope.term.format import plural
from hopscope.verbs.cpu.energy import energy_j, read_energy_uj
from hopscope.verbs.cpu.options import GROUP_BY, CpuOptions, overflow_note
from hopscope.verbs.cpu.stacks import StackSampler

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

    from hopscope.libbpf import BpfObject
    from hopscope.live.cost import CostReading
    from hopscope.model.snapshot import Kind, Overhead
    from hopscope.model.stacks import Stack

# They interrupt whoever runs.
_OF_NOBODY: Final = {"net_rx", "net_tx", "timer", "tasklet"}
# Of the ticks that the frequency promises: with fewer, it is said.
_FEW_TICKS: Final = 0.95


@dataclass(frozen=True, slots=True)
class _Reading:
    """All of it at one instant, cumulative; as in the collector that accounts exactly."""

    ticks: int
    lost: int
    overflow: int
    at_s: float
    clock_ns: int
    energy_uj: int | None
    cost: CostReading


class SampledCollector(Attached):
    """Runs the clock; entering it attaches, leaving it detaches, whatever happened.

    Parameters
    ----------
    options
        What is asked for.

    Raises
    ------
    UsageError
        It cannot be had from samples.
    """

    _sampler: StackSampler
    _first: _Reading
    _last: _Reading

    def __init__(self, options: CpuOptions) -> None:
        if options.counters:
            raise UsageError("--sampled and --counters cannot be combined", "Leave out one of them")
        if options.group_by == "interface":
            raise UsageError(
                "--sampled cannot group by interface, because a stack does not tell the device",
                "Leave out --sampled, or group by cpu, process or cgroup",
            )
        self._options = options
        self._plan = Plan(Resolver(), [POINTS["cpu.sample_alone"]], options.ways)
        self._labels = Labels(options.group_by)

    def drain(self) -> None:
        """Make room for further stacks; to be called several times a second."""
        self._sampler.drain()

    def interval(self) -> CpuSnapshot:
        """Return what was seen since the last call."""
        before, self._last = self._last, self._read()
        return self._snapshot("interval", before, self._sampler.interval(self._group_names()))

    def total(self) -> CpuSnapshot:
        """Return what was seen since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._first, self._sampler.total())

    def _open(self, stack: contextlib.ExitStack) -> None:
        self._session = stack.enter_context(Session("cpu", self._plan, self._configure, needed=TO_TRACE))
        bpf = self._session.bpf
        self._note_plan(bpf, self._options.ways)
        self._counters = bpf.maps["counters"].array()
        self._sampler = StackSampler(bpf, self._options.hz, alone=True)
        stack.callback(self._sampler.close)
        self._first = self._last = self._read()

    def _configure(self, bpf: BpfObject) -> None:
        bpf.set_const("cfg_group_by", int(GROUP_BY[self._options.group_by]))
        bpf.set_const("cfg_groups", self._options.rows)
        for name in ("groups", "group_rows"):
            bpf.maps[name].set_max_entries(self._options.rows)
        for name in ("counters", "rings"):
            bpf.maps[name].set_max_entries(possible_cpus())

    def _read(self) -> _Reading:
        return _Reading(
            ticks=int(self._counters["ticks"].sum()),
            lost=int(self._counters["lost"].sum()),
            overflow=int(self._counters["group_overflow"].sum()),
            at_s=time.monotonic(),
            clock_ns=time.time_ns(),
            energy_uj=read_energy_uj(),
            cost=self._cost.read(),
        )

    def _group_names(self) -> dict[int, str]:
        if self._options.group_by == "cpu":
            return {cpu: str(cpu) for cpu in range(possible_cpus())}
        rows, groups = self._session.bpf.maps["groups"].items()
        return {0: NOT_KNOWN} | {int(row): self._labels.name(group) for row, group in zip(rows, groups, strict=True)}

    def _snapshot(self, kind: Kind, before: _Reading, stacks: list[Stack]) -> CpuSnapshot:
        after, cpus = self._last, len(online_cpus())
        duration_s, ticks = after.at_s - before.at_s, after.ticks - before.ticks
        if self._options.group_by != "cpu":
            stacks = [replace(each, group=NOT_KNOWN) if each.part in _OF_NOBODY else each for each in stacks]
        # Each stands for the time between two: ticks that are missing are as a rule those of idle CPUs of a guest.
        rows = self._rows(stacks, 1e9 / self._options.hz)
        if self._options.group_by == "cpu":
            stacks = [replace(each, group="") for each in stacks]
        overhead = self._cost.overhead(before.cost, after.cost)
        return CpuSnapshot(
            kind=kind,
            started_ns=before.clock_ns,
            duration_s=duration_s,
            cpus=cpus,
            total=CpuRow({}, added(rows)),
            rows=rows,
            overhead=overhead,
            hz=self._options.hz,
            stacks=stacks,
            lost=after.lost - before.lost,
            ticks=max(ticks, 1),
            energy_j=energy_j(before.energy_uj, after.energy_uj),
            plan=self._plan.rows(),
            notes=[*self._budget_notes(overhead), *self._notes(before, after, duration_s * cpus * self._options.hz)],
        )

    def _rows(self, stacks: Iterable[Stack], sample_ns: float) -> list[CpuRow]:
        """Return the rows: of CPUs those that are online, of groups those that have samples, the busiest first."""
        by = self._options.group_by
        samples: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(PARTS, 0))
        if by == "cpu":
            samples.update((str(cpu), dict.fromkeys(PARTS, 0)) for cpu in online_cpus())
        for stack in stacks:
            samples[stack.group][stack.part] += stack.samples
        rows = [
            CpuRow({by: group}, {part: _part(number, sample_ns) for part, number in parts.items()})
            for group, parts in samples.items()
        ]
        return sorted(rows, key=lambda row: int(row.group[by]) if by == "cpu" else -row.ns)

    def _budget_notes(self, overhead: Overhead) -> list[str]:
        budget = self._options.budget
        if budget is None:
            return []
        notes = [f"budget {budget:g}% of a CPU: each CPU is looked at {plural(self._options.hz, 'time')} a second"]
        if (overhead.bpf_cpu_percent or 0.0) + overhead.reader_cpu_percent > budget:
            notes.append(READING_TAKES_IT)
        return notes

    def _notes(self, before: _Reading, after: _Reading, expected: float) -> list[str]:
        notes = ["times are estimates from samples; hard interrupts cannot be sampled, and nothing is counted"]
        overflow, ticks = after.overflow - before.overflow, after.ticks - before.ticks
        if overflow:
            notes.append(overflow_note(overflow, self._options))
        if ticks < _FEW_TICKS * expected:
            notes.append(
                f"the CPUs were looked at {ticks / expected:.0%} as often as asked for: what runs while the clock is "
                "held off has too few samples"
            )
        return notes


def _part(samples: int, sample_ns: float) -> Part:
    return replace(NO_PART, ns=round(samples * sample_ns), samples=samples)
