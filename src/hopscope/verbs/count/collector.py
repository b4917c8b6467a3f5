# SPDX-License-Identifier: Apache-2.0
"""Count how often the kernel passes events: it counts itself, and nothing is written for a single one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.kernel.capabilities import TO_TRACE, require_rights
from hopscope.kernel.tracepoints import Spec, wanted_events
from hopscope.live.cost import CostMeter
from hopscope.live.labels import OTHER
from hopscope.term.format import plural
from hopscope.verbs.count.counters import BY_PROGRAMS, KernelCounters, ProgramCounters
from hopscope.verbs.count.snapshot import CountSnapshot, EventCount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from hopscope.live.cost import CostReading
    from hopscope.model.snapshot import Kind, Overhead, PlanRow

# To count is all that they take.
_TO_COUNT: Final = ("CAP_PERFMON",)
# Events that add what they measured, in ns, to the kernel's counters (__perf_count(), include/trace/events/sched.h).
_WEIGHTED: Final = "sched:sched_stat_"


class _Reading(NamedTuple):
    """All of it at one instant, cumulative."""

    at_s: float
    counts: Sequence[Counter[str]]
    overflow: int
    cost: CostReading


class CountCollector:
    """Counts events; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    events
        As :class:`~hopscope.kernel.tracepoints.Spec` reads them.
    group_by
        One of :data:`BY_PROGRAMS`, ``cpu``, or None.
    max_groups
        How many of them are told apart.

    Raises
    ------
    UsageError
        An event is none.
    """

    def __init__(self, events: Sequence[str], group_by: str | None, max_groups: int) -> None:
        self._specs = [Spec.parse(each) for each in events]
        self._group_by = group_by
        self._max_groups = max_groups

    def __enter__(self) -> Self:
        """Begin to count.

        Raises
        ------
        PrivilegeError
            A right is missing.
        UsageError
            There is no such event, or the kernel refuses a filter.
        KernelError
            The kernel refuses, or has no probes for functions.
        """
        by_programs = self._group_by in BY_PROGRAMS
        require_rights(TO_TRACE if by_programs else _TO_COUNT)
        self._events = wanted_events(self._specs)
        self._counters: KernelCounters | ProgramCounters
        if self._group_by and by_programs:
            self._counters = ProgramCounters(self._events, self._group_by, self._max_groups)
        else:
            self._counters = KernelCounters(self._events, by_cpu=self._group_by == "cpu")
        with contextlib.ExitStack() as stack:
            self._counters.open(stack)
            self._cost = CostMeter(self._counters.programs)
            self._first = self._before = self._last = self._read()
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def plan(self) -> list[PlanRow]:
        """Return nothing: there are no probe points."""
        return []

    def measure_cost(self, window_s: float) -> None:
        """Wait, and let the kernel measure the programs meanwhile, if there are any."""
        if self._counters.programs:
            self._cost.sample(window_s)
        else:
            time.sleep(window_s)

    def interval(self) -> CountSnapshot:
        """Return what was counted since the last call."""
        self._before, self._last = self._last, self._read()
        return self._snapshot("interval", self._before)

    def total(self) -> CountSnapshot:
        """Return what was counted since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._first)

    def _read(self) -> _Reading:
        counts = [Counter(each) for each in self._counters.read()]
        return _Reading(time.monotonic(), counts, self._counters.overflow, self._cost.read())

    def _snapshot(self, kind: Kind, before: _Reading) -> CountSnapshot:
        after = self._last
        found = [now - then for now, then in zip(after.counts, before.counts, strict=True)]
        return CountSnapshot(
            kind=kind,
            started_ns=round(before.at_s * 1e9) + wall_offset_ns(),
            duration_s=after.at_s - before.at_s,
            group_by=self._group_by,
            events=[
                EventCount(event.label, dict(sorted(counts.items(), key=_rank)))
                for event, counts in zip(self._events, found, strict=True)
            ],
            overhead=self._overhead(before, after),
            notes=list(self._notes(after.overflow - before.overflow)),
        )

    def _overhead(self, before: _Reading, after: _Reading) -> Overhead | None:
        return self._cost.overhead(before.cost, after.cost) if self._counters.programs else None

    def _notes(self, overflow: int) -> Iterator[str]:
        if overflow:
            yield (
                f"{plural(overflow, 'event')} counted as `{OTHER}`: the limit of "
                f"{plural(self._max_groups, 'group')} is reached (--max-groups)"
            )
        weighted = [event.label for event in self._events if event.label.startswith(_WEIGHTED)]
        if weighted and not self._counters.programs:
            yield (
                f"{', '.join(weighted)}: the kernel adds nanoseconds here, and not 1 an event, as in perf stat; "
                "-g comm counts events"
            )


def _rank(group: tuple[str, int]) -> tuple[bool, int, str]:
    name, count = group
    return name == OTHER, -count, name
