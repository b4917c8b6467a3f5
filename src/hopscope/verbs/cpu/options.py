# SPDX-License-Identifier: Apache-2.0
"""What the user asks of ``cpu``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopGroupBy
from hopscope.libbpf import online_cpus
from hopscope.live.labels import NOT_KNOWN
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.libbpf.perf_event import CounterEvent

GROUP_BY: Final = {
    # Every CPU has its own rows anyway.
    "cpu": HopGroupBy.HOP_GROUP_NONE,
    "process": HopGroupBy.HOP_GROUP_PROCESS,
    "cgroup": HopGroupBy.HOP_GROUP_CGROUP,
    "interface": HopGroupBy.HOP_GROUP_INTERFACE,
}
# Of a budget, what samples may take: the rest is for reading them. A sample's stack and its interrupt, at most.
_SAMPLES_SHARE: Final = 0.5
_SAMPLE_S: Final = 30e-6


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Everything that ``cpu`` can be asked for.

    Attributes
    ----------
    group_by
        A key of :data:`GROUP_BY`.
    max_groups
        Groups that get a row of their own.
    hz
        How often a second the stack of each CPU is looked at; 0: never.
    sampled
        Whether samples alone tell the times, at `hz`; else they are exact.
    counters
        Counters that are read at each change of part: name (of :data:`~hopscope.verbs.cpu.pmu.NAMES`) → what it
        counts.
    ways
        Probe point → the only way to use.
    budget
        Per cent of one CPU that samples and this process may take; None: what it takes.
    """

    group_by: str = "cpu"
    max_groups: int = 256
    hz: int = 0
    sampled: bool = False
    counters: Mapping[str, CounterEvent] = field(default_factory=dict)
    ways: Mapping[str, str] = field(default_factory=dict)
    budget: float | None = None

    @property
    def rows(self) -> int:
        """Rows that a CPU has, "other" included."""
        return 1 if self.group_by == "cpu" else self.max_groups + 1


def affordable_hz(budget: float, most: int) -> int:
    """Return how often a second each CPU can be looked at within a budget, in per cent of one CPU; once at least."""
    samples = budget / 100 * _SAMPLES_SHARE / _SAMPLE_S
    return min(max(round(samples / len(online_cpus())), 1), most)


def overflow_note(times: int, options: CpuOptions) -> str:
    """Return the sentence that says that groups had no row of their own."""
    return (
        f"counted as `{NOT_KNOWN}` {plural(times, 'time')}: the limit of {plural(options.max_groups, 'group')} was "
        "reached (--max-groups)"
    )
