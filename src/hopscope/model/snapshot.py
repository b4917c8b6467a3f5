# SPDX-License-Identifier: Apache-2.0
"""The results that collectors fill and views show: plain data, no behaviour but what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.histogram import Histogram
    from hopscope.model.sampled import Coverage

PACKET_UNIT: Final = "packet"
# The percentiles that are shown, by the names of their columns.
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
# What the hops `*_wake` consist of: the last part of the names of their hops.
PARTS_OF_WAKE: Final = ("asleep", "runnable")
# The chain of hops that lie before the protocol is known: part of every other chain.
COMMON_CHAIN: Final = ""

# The least and the most that a percentile may be, in ns; None for the most: more than was measured. None: not known.
Bounds: TypeAlias = tuple[float, float | None] | None
Kind: TypeAlias = Literal["interval", "total"]
Outcome: TypeAlias = Literal["dropped", "discarded"]
PlanStatus: TypeAlias = Literal["attached", "refused", "unavailable", "not needed"]


@dataclass(frozen=True, slots=True)
class HopRow:
    """One hop's durations, of one group.

    Parameters
    ----------
    hop
        Its name, such as ``rx.tcp_queue``.
    from_point, to_point
        The probe points between which it lies.
    unit
        What one sample is: ``packet``, ``message``, ``frame``, ``softirq``, ``poll``, ….
    group
        Grouping key → value, such as ``{"interface": "eth0"}``; empty without grouping.
    histogram
        The durations in ns.
    chain
        Which hops it adds up with to an end to end time, of which it has a share; None for one that stands alone.
    error_ns
        How far each may be off, where two clocks had to be related.
    cause
        Name of the cause (:mod:`hopscope.model.cause`) that all of its time belongs to, if it is one.
    bounds
        Of each of :data:`PERCENTILES`, with 95 % confidence, where a part was measured; None: all was.
    """

    hop: str
    from_point: str
    to_point: str
    unit: str
    group: dict[str, str]
    histogram: Histogram
    chain: str | None = None
    error_ns: int | None = None
    cause: str | None = None
    bounds: Mapping[str, Bounds] | None = None


@dataclass(frozen=True, slots=True)
class Discard:
    """Samples of a hop that could not be used: the reason's name and, for people, what it means."""

    hop: str
    reason: str
    count: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of packets that nobody read.

    Attributes
    ----------
    outcome
        ``dropped``, or ``discarded`` for all other reasons.
    reason
        Of a drop, the kernel's name (``NO_SOCKET``), or ``unknown``; otherwise hopscope's own name.
    hop
        Where they were seen last.
    count
        Packets.
    meaning
        For people; empty where the reason is the kernel's.
    """

    outcome: Outcome
    reason: str
    hop: str
    count: int
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class PacketAccount:
    """What became of each packet that entered.

    ``before + entered = read + queued + under_way + unaccounted + dropped + discarded``: to the packet.

    Attributes
    ----------
    before
        Packets that had entered earlier and were not accounted for yet.
    entered
        Packets that reached the core, or were dropped before; with a filter that only a socket can decide, those that
        joined a socket.
    read
        By applications.
    queued
        In sockets, at the end.
    under_way
        Neither: still on their way, or gone without a hook having seen it.
    unaccounted
        What is missing in the sum: packets that moved on while the figures were read. Below 0, some count twice, which
        is possible where two CPUs count the end of the same one at once: no lock prevents it.
    endings
        All others, by outcome, reason and hop.
    """

    before: int
    entered: int
    read: int
    queued: int
    under_way: int
    unaccounted: int
    endings: list[Ending] = field(default_factory=list)

    def ended(self, outcome: Outcome) -> int:
        """Return the packets of an outcome, over all reasons."""
        return sum(ending.count for ending in self.endings if ending.outcome == outcome)


# The figures of an account, in the order of the path.
PACKET_FIGURES: Final = ("before", "entered", "read", "queued", "under_way", "unaccounted")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One way to attach a probe point, and what became of it in this run.

    `reason` says why it is not attached, `differs` what it sees differently from the preferred way, `next_step` what
    the user can do; each may be empty.
    """

    point: str
    way: str
    status: PlanStatus
    reason: str = ""
    differs: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What one BPF program cost in the interval.

    `floor_ns` is the cost of an empty program on a hook of the same kind. `missed` are runs that the kernel
    suppressed because of recursion.
    """

    name: str
    hits: int
    ns_per_hit: float | None
    floor_ns: float | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Overhead:
    """What measuring itself cost. Per cent are of one CPU; None is a figure that the kernel does not give."""

    hits: int
    ns_per_hit: float | None
    bpf_cpu_percent: float | None
    reader_cpu_percent: float
    missed: int
    by_program: list[ProgramCost] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a verb found in one interval, or in the whole run.

    Parameters
    ----------
    verb
        The command, such as ``rx``.
    kind
        ``interval`` or ``total``.
    started_ns
        CLOCK_REALTIME at the beginning, for display alone.
    duration_s
        Length by CLOCK_MONOTONIC.
    hops
        In the order in which they are to be shown, the way of a packet from top to bottom.
    lost
        Samples lost because the kernel had no room for them.
    sampling_1_in
        1 in this many packets was measured; counts are of the measured ones.
    filters
        Filter name → value as given by the user.
    notes
        Sentences for the user.
    packets
        What became of each packet; None where that is not known.
    coverage
        Which part was measured, where the cost of measuring is limited; counts are then estimates of the whole.
    """

    verb: str
    kind: Kind
    started_ns: int
    duration_s: float
    hops: list[HopRow]
    overhead: Overhead
    lost: int = 0
    discarded: list[Discard] = field(default_factory=list)
    plan: list[PlanRow] = field(default_factory=list)
    sampling_1_in: int = 1
    filters: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    packets: PacketAccount | None = None
    coverage: Coverage | None = None

    @property
    def sample_count(self) -> int:
        """Samples of all hops."""
        return sum(row.histogram.count for row in self.hops)


@dataclass(frozen=True, slots=True)
class MethodStatus:
    """An attach method of a probe point, and whether this kernel supports it."""

    way: str
    granted: bool
    chosen: bool
    reason: str = ""
    next_step: str = ""
    differs: str = ""


@dataclass(frozen=True, slots=True)
class PointStatus:
    """A probe point: what it marks, the attach method in use (None: none), and all methods in order of preference."""

    point: str
    marks: str
    chosen: str | None
    ways: list[MethodStatus]


@dataclass(frozen=True, slots=True)
class HostFact:
    """Something about the host that decides what can be measured; `next_step` only if it is not `ok`."""

    name: str
    value: str
    ok: bool
    next_step: str = ""
