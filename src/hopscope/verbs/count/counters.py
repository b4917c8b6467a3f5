# SPDX-License-Identifier: Apache-2.0
"""Two ways to have the kernel count an event: by its own counters, a CPU's each, or by a program that looks who it was.

The kernel's own counters are those that perf(1) reads. They know filters, and miss an event only if it happens while
the kernel handles another one in the same context of that CPU. A program knows no filter, and the kernel leaves out its
run while another one of its type runs on that CPU, and counts that (ProgramInfo.recursion_misses).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.bpf import object_path
from hopscope.bpf.layout import HopGroupBy
from hopscope.errors import UsageError
from hopscope.libbpf import BpfObject, online_cpus, possible_cpus
from hopscope.live.labels import OTHER, Labels

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.kernel.tracepoints import WantedEvent
    from hopscope.libbpf import Program
    from hopscope.libbpf.perf_event import RecordedEvent

# What programs can tell apart.
BY_PROGRAMS: Final = {
    "comm": HopGroupBy.HOP_GROUP_COMM,
    "pid": HopGroupBy.HOP_GROUP_PROCESS,
    "tid": HopGroupBy.HOP_GROUP_THREAD,
    "cgroup": HopGroupBy.HOP_GROUP_CGROUP,
}


class KernelCounters:
    """The kernel's counters of events, one a CPU.

    Parameters
    ----------
    events
        What to count.
    by_cpu
        Whether each CPU is a group.
    """

    def __init__(self, events: Sequence[WantedEvent], *, by_cpu: bool) -> None:
        self._events = events
        self._by_cpu = by_cpu
        self.programs: list[Program] = []
        self.overflow = 0

    def open(self, stack: contextlib.ExitStack) -> None:
        """Begin to count."""
        self._opened: list[dict[int, RecordedEvent]] = [{} for _ in self._events]
        for opened, event in zip(self._opened, self._events, strict=True):
            for cpu in online_cpus():
                opened[cpu] = event.open(cpu, recorded=False)
                stack.callback(opened[cpu].close)
        for opened in self._opened:
            for counter in opened.values():
                counter.enable()

    def read(self) -> list[dict[str, int]]:
        """Return how often each event was passed up to now, by group."""
        found = [{cpu: counter.counted().weight for cpu, counter in opened.items()} for opened in self._opened]
        if self._by_cpu:
            return [{str(cpu): count for cpu, count in counts.items()} for counts in found]
        return [{"": sum(counts.values())} for counts in found]


class ProgramCounters:
    """A program at each event, which counts by who runs.

    Parameters
    ----------
    events
        What to count.
    group_by
        One of :data:`BY_PROGRAMS`.
    most
        How many groups an event may have; the rest is :data:`~hopscope.live.labels.OTHER`.

    Raises
    ------
    UsageError
        An event has a filter.
    """

    def __init__(self, events: Sequence[WantedEvent], group_by: str, most: int) -> None:
        for event in events:
            if event.filter:
                raise UsageError(
                    f"The filter of {event.label} cannot be combined with -g {group_by}: the kernel applies filters "
                    "to what it counts in all or by CPU",
                    f"Use -g cpu, or `hopscope record -e '{event.label}:{event.filter}'` and `hopscope sql`",
                )
        self._events = events
        self._by = BY_PROGRAMS[group_by]
        self._rows = 1 + most
        self._labels = Labels(group_by)
        self.programs: list[Program] = []

    def open(self, stack: contextlib.ExitStack) -> None:
        """Begin to count."""
        self._objects = [stack.enter_context(self._attached(event)) for event in self._events]
        self._passed = [bpf.maps["passed"].array().reshape(possible_cpus(), self._rows) for bpf in self._objects]
        self._overflows = [bpf.maps["counters"].array()["group_overflow"] for bpf in self._objects]
        self._names: list[dict[int, str]] = [{0: OTHER} for _ in self._objects]

    @property
    def overflow(self) -> int:
        """Events that are counted as the rest for want of a group of their own, up to now."""
        return sum(int(each.sum()) for each in self._overflows)

    def read(self) -> list[dict[str, int]]:
        """Return how often each event was passed up to now, by group."""
        return [dict(self._groups(index)) for index in range(len(self._objects))]

    def _groups(self, index: int) -> Iterator[tuple[str, int]]:
        counts: Mapping[int, int] = dict(enumerate(self._passed[index].sum(axis=0).tolist()))
        names = self._names[index]
        # While a map is read by a system call, the kernel keeps programs on that CPU from running.
        if any(count and row not in names for row, count in counts.items()):
            rows, groups = self._objects[index].maps["groups"].items()
            names |= {int(row): self._labels.name(group) for row, group in zip(rows, groups, strict=True)}
        found: dict[str, int] = {}
        for row, count in counts.items():
            if count:
                name = names.get(row, OTHER)
                found[name] = found.get(name, 0) + count
        return iter(found.items())

    def _attached(self, event: WantedEvent) -> BpfObject:
        wanted = "count_function" if event.is_function else "count_tracepoint"
        bpf = BpfObject.open(object_path("count"))
        try:
            for program in bpf.programs.values():
                program.autoload = program.name == wanted
            bpf.set_const("cfg_group_by", int(self._by))
            bpf.set_const("cfg_groups", self._rows)
            bpf.maps["passed"].set_max_entries(possible_cpus() * self._rows)
            bpf.maps["counters"].set_max_entries(possible_cpus())
            for name in ("groups", "group_rows"):
                bpf.maps[name].set_max_entries(self._rows)
            bpf.load()
            program = bpf.programs[wanted]
            program.attach_event(event.open(online_cpus()[0], recorded=False).fd)
            self.programs.append(program)
        except BaseException:
            bpf.close()
            raise
        return bpf
