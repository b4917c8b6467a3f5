# SPDX-License-Identifier: Apache-2.0
"""The CPU time of interrupts, softirqs and threads of a trace: at each moment, a CPU does the innermost of them.

A softirq's time is without the interrupts that came meanwhile, a thread's without what interrupted it. Threads are
recorded from their first use of a socket on; what else a CPU does, and whether it is idle, is not in a trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.model.cgroup import shorten
from hopscope.model.report import Column, Report, of_rows
from hopscope.model.stacks import Stack
from hopscope.trace.activity import interrupt_runs, softirq, thread_runs
from hopscope.trace.gaps import loss_notes, unattached_notes
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hopscope.model.report import Value
    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection

    I64 = NDArray[np.int64]

COLUMNS: Final = (
    Column("part", "text", "irq: interrupts of devices; softirq; thread: of a process that uses sockets", "part"),
    Column("name", "text", "the interrupt's number, the softirq, or the process", "name"),
    Column("time_ns", "ns", "CPU time in it, without what interrupted it", "time"),
    Column("share", "part", "share of the period, on one CPU; several CPUs together can exceed 100 %", "of a CPU"),
)
BY_COLUMNS: Final = (
    Column("cpu", "text", "CPU, with --group-by", "CPU"),
    Column("process", "text", "process whose thread ran or was interrupted, with --group-by; -: none that is recorded",
           "process"),
    Column("cgroup", "text", "cgroup of that process (containers: 12 digits of their id), with --group-by; -: unknown",
           "cgroup"),
)  # fmt: skip
BY: Final = tuple(each.name for each in BY_COLUMNS)
_PARTS: Final = ("irq", "softirq", "thread")
_IRQ, _SOFTIRQ, _THREAD = range(3)
_NONE: Final = "-"
INTERRUPT: Final = "interrupt "


class _Runs(NamedTuple):
    """Intervals of one part: where, when, and the number of the interrupt, softirq or process."""

    cpu: I64
    begin_ns: I64
    end_ns: I64
    number: I64

    def on(self, cpu: int) -> _Runs:
        """Return those on a CPU in order; each ends where the next one begins, or before."""
        chosen = np.flatnonzero(self.cpu == cpu)
        chosen = chosen[np.argsort(self.begin_ns[chosen], kind="stable")]
        begin_ns, end_ns, number = self.begin_ns[chosen], self.end_ns[chosen], self.number[chosen]
        if len(chosen):
            end_ns = np.minimum(end_ns, np.append(begin_ns[1:], end_ns[-1]))
        return _Runs(self.cpu[chosen], begin_ns, end_ns, number)

    def at(self, time_ns: I64) -> I64:
        """Return the number of the one that there is at each time; -1: none."""
        place = np.searchsorted(self.begin_ns, time_ns, side="right") - 1
        found = np.where(place >= 0, self.number[place], -1) if len(self.number) else np.full(len(time_ns), -1)
        return np.where(self.end_ns[place] > time_ns, found, -1) if len(self.number) else found


@dataclass(frozen=True, slots=True)
class CpuTime:
    """What CPUs did in slices of a period; arrays of one length.

    Attributes
    ----------
    bounds_ns
        Where slices begin, and where the last ends; CLOCK_MONOTONIC.
    cpu, slice
        Where and when.
    parts
        Numbers of interrupt, softirq and process; -1: none. The first of them that there is has the time.
    time_ns
        Duration.
    """

    bounds_ns: I64
    cpu: I64
    slice: I64
    parts: tuple[I64, I64, I64]
    time_ns: I64

    def of_slice(self, number: int) -> CpuTime:
        """Return what CPUs did in one slice."""
        chosen = np.flatnonzero(self.slice == number)
        irq, soft, process = (each[chosen] for each in self.parts)
        return CpuTime(
            self.bounds_ns[number : number + 2],
            self.cpu[chosen],
            np.zeros(len(chosen), np.int64),
            (irq, soft, process),
            self.time_ns[chosen],
        )

    def part(self) -> I64:
        """Return which part has the time."""
        irq, soft, _ = self.parts
        return np.where(irq >= 0, _IRQ, np.where(soft >= 0, _SOFTIRQ, _THREAD))


def cpu_time(trace: Trace, selection: Selection, slices: int = 1) -> CpuTime:
    """Return what CPUs did in the selected period, in so many slices of equal length."""
    return cpu_time_between(trace, _bounds(trace, selection, slices))


def cpu_time_between(trace: Trace, bounds_ns: I64) -> CpuTime:
    """Return what CPUs did in slices that begin, and the last of which ends, at these times; CLOCK_MONOTONIC."""
    layers = [*(_interrupts(trace, kind) for kind in _PARTS[:_THREAD]), _threads(trace)]
    cells: list[list[I64]] = [[] for _ in range(6)]
    for cpu in np.unique(np.concatenate([each.cpu for each in layers])).tolist():
        here = [each.on(cpu) for each in layers]
        cuts = np.unique(np.concatenate([bounds_ns, *(cut for each in here for cut in (each.begin_ns, each.end_ns))]))
        cuts = cuts[(cuts >= bounds_ns[0]) & (cuts <= bounds_ns[-1])]
        begin_ns = cuts[:-1]
        whose = [each.at(begin_ns) for each in here]
        busy = np.flatnonzero(np.any([each >= 0 for each in whose], axis=0))
        place = np.searchsorted(bounds_ns, begin_ns[busy], side="right") - 1
        key = np.stack([place, *(each[busy] for each in whose)])
        # Equal ones are one: there are as many as there are different things, and not as many as events.
        found, first = np.unique(key, axis=1, return_inverse=True)
        time_ns = np.bincount(first.reshape(-1), np.diff(cuts)[busy], found.shape[1]).astype(np.int64)
        for column, values in zip(cells, [np.full(found.shape[1], cpu), *found, time_ns], strict=True):
            column.append(values)
    none = np.zeros(0, np.int64)
    cpus, place, irq, soft, process, time_ns = (np.concatenate(each) if each else none for each in cells)
    return CpuTime(bounds_ns, cpus, place, (irq, soft, process), time_ns)


def report_cpu(trace: Trace, selection: Selection, *, by: str | None = None, limit: int | None = None) -> Report:
    """Return a row for each interrupt, softirq and process, most time first. Only the period of `selection` applies.

    Parameters
    ----------
    by
        One of :data:`BY`: also for each CPU, or for each process that ran or was interrupted, or its cgroup.
    limit
        Maximum number of rows.
    """
    return report_of(trace, cpu_time(trace, selection), by=by, limit=limit)


def report_of(trace: Trace, found: CpuTime, *, by: str | None = None, limit: int | None = None) -> Report:
    """Return the report on the whole of a period; parameters as of :func:`report_cpu`."""
    names = _Names(trace)
    sums: dict[tuple[str, ...], int] = {}
    for group, part, name, time_ns in zip(names.groups(found, by), *names.named(found), found.time_ns, strict=True):
        key = (*([group] if by else []), part, name)
        sums[key] = sums.get(key, 0) + int(time_ns)
    length_ns = int(found.bounds_ns[-1] - found.bounds_ns[0])
    rows: list[list[Value]] = [[*key, time_ns, time_ns / length_ns] for key, time_ns in sums.items()]
    rows.sort(key=lambda row: (-float(row[-2] or 0), *map(str, row[:-2])))
    columns = (*([BY_COLUMNS[BY.index(by)]] if by else []), *COLUMNS)
    left_out = 0 if limit is None else max(len(rows) - limit, 0)
    notes = _notes(trace, found)
    if by == "cgroup" and not names.cgroups:
        notes.append("the trace does not say in which cgroups processes were")
    return of_rows("cpu", columns, rows[:limit], notes=notes, left_out=left_out)


def cpu_over_time(
    trace: Trace, selection: Selection, slices: int, *, by: str | None = None
) -> tuple[list[float], list[tuple[str, list[float]]]]:
    """Return bounds of slices, in s since the start, and what has most time first: its share of a CPU in each slice.

    Parameters
    ----------
    by
        One of :data:`BY`; None: by part, with softirqs one by one.
    """
    found = cpu_time(trace, selection, slices)
    names = _Names(trace)
    parts, softirqs = names.named(found)
    labels = names.groups(found, by) if by else [
        f"softirq {name}" if part == _PARTS[_SOFTIRQ] else part for part, name in zip(parts, softirqs, strict=True)
    ]  # fmt: skip
    series: dict[str, I64] = {}
    for label, place, time_ns in zip(labels, found.slice.tolist(), found.time_ns.tolist(), strict=True):
        series.setdefault(label, np.zeros(slices, np.int64))[place] += time_ns
    widths = np.diff(found.bounds_ns)
    ordered = sorted(series.items(), key=lambda item: (-int(item[1].sum()), item[0]))
    bounds_s = ((found.bounds_ns - trace.metadata.started_ns) / 1e9).tolist()
    return bounds_s, [(label, (values / widths).tolist()) for label, values in ordered]


def cpu_stacks(trace: Trace, selection: Selection) -> list[Stack]:
    """Return for each CPU what was inside of what, with the time of the innermost in ns."""
    found = cpu_time(trace, selection)
    names = _Names(trace)
    whole = []
    for cpu, irq, soft, process, time_ns in zip(found.cpu, *found.parts, found.time_ns, strict=True):
        frames = [
            names.processes.get(int(process), str(process)) if process >= 0 else "",
            softirq(int(soft)) if soft >= 0 else "",
            f"{INTERRUPT}{irq}" if irq >= 0 else "",
        ]
        whole.append(Stack(f"CPU {names.cpus[int(cpu)]}", tuple(filter(None, frames)), int(time_ns)))
    return whole


class _Names:
    """The names of CPUs, processes and their cgroups."""

    def __init__(self, trace: Trace) -> None:
        build(trace, "cpu_names", "process_cgroups", "thread_names")
        self.cpus: Mapping[int, str] = dict(trace.rows("SELECT cpu, name FROM cpu_names"))
        self.processes: Mapping[int, str] = dict(trace.rows("SELECT pid, min(name) FROM thread_names GROUP BY pid"))

        self.cgroups: Mapping[int, str] = {
            pid: shorten(path) + at_host
            for pid, path, at_host in trace.rows("SELECT pid, cgroup_path, at_host FROM process_cgroups")
        }

    def groups(self, found: CpuTime, by: str | None) -> list[str]:
        if by == "cpu":
            return [self.cpus[cpu] for cpu in found.cpu.tolist()]
        if by == "cgroup":
            return [self.cgroups.get(each, _NONE) for each in found.parts[_THREAD].tolist()]
        return [self.processes.get(each, str(each)) if each >= 0 else _NONE for each in found.parts[_THREAD].tolist()]

    def named(self, found: CpuTime) -> tuple[list[str], list[str]]:
        """Return part and name of what has the time."""
        part = found.part().tolist()
        of = (str, softirq, lambda number: self.processes.get(number, str(number)))
        numbers = zip(part, *(each.tolist() for each in found.parts), strict=True)
        return [_PARTS[each] for each in part], [of[each](row[each]) for each, *row in numbers]


def _bounds(trace: Trace, selection: Selection, slices: int) -> I64:
    """Return where slices begin and the last ends: of the recorded part of the selected period."""
    metadata = trace.metadata
    ((first, last),) = trace.rows("SELECT min(time_ns), max(time_ns) FROM cpu")
    first, last = (metadata.started_ns, metadata.started_ns) if first is None else (first, last)
    asked = (selection.from_s, selection.until_s)
    from_ns, until_ns = (None if each is None else metadata.started_ns + round(each * 1e9) for each in asked)
    first = first if from_ns is None else max(first, min(from_ns, last))
    last = last if until_ns is None else min(last, until_ns)
    length_ns = max(int(last - first), slices)
    return first + np.arange(slices + 1, dtype=np.int64) * length_ns // slices


def _interrupts(trace: Trace, kind: str) -> _Runs:
    rows = interrupt_runs(trace, kind)
    return _Runs(*(np.asarray(rows[name]).astype(np.int64) for name in ("cpu", "begin_ns", "end_ns", "subject")))


def _threads(trace: Trace) -> _Runs:
    """Return when threads ran, with their processes."""
    rows = thread_runs(trace)
    known = dict(trace.rows("SELECT tid, max(pid) FROM threads GROUP BY tid"))
    threads, place = np.unique(np.asarray(rows["subject"]), return_inverse=True)
    process = np.array([known.get(each, each) for each in threads.tolist()], np.int64)[place.reshape(-1)]
    cpu, begin_ns, end_ns = (np.asarray(rows[name]).astype(np.int64) for name in ("cpu", "begin_ns", "end_ns"))
    return _Runs(cpu, begin_ns, end_ns, process)


def _notes(trace: Trace, found: CpuTime) -> list[str]:
    notes = []
    parts = set(found.part().tolist())
    if not parts:
        notes.append("the trace does not say what CPUs did: record with `-P cpu`")
    elif not parts & {_IRQ, _SOFTIRQ}:
        notes.append("interrupts and softirqs were not recorded, and are in the time of threads: record with `-P cpu`")
    if parts:
        notes.append("the rest of the time, CPUs were idle or ran threads without sockets, which are not recorded")
    wanted = ("irq.enter", "irq.exit", "softirq.enter", "softirq.exit", "sched.switch")
    return [*notes, *loss_notes(trace), *unattached_notes(trace, wanted)]
