# SPDX-License-Identifier: Apache-2.0
"""What is known of the clocks of several hosts, at intervals and of the whole, while they are probed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.clock.curve import Floats, Ns

# What becomes of a pair: all is well; nothing is known yet; nothing comes through; or only in one direction; a clock
# was set or its frequency changed; it has failed for good.
GOOD: Final = "good"
WAITING: Final = "waiting"
SILENT: Final = "silent"
ONE_WAY: Final = "one way"
CHANGED: Final = "changed"
FAILED: Final = "failed"
STATES: Final = (GOOD, WAITING, SILENT, ONE_WAY, CHANGED, FAILED)

# All of NICs; all of kernels; windows of either.
HARDWARE: Final = "hardware"
SOFTWARE: Final = "software"
MIXED: Final = "mixed"
STAMPS: Final = (HARDWARE, SOFTWARE, MIXED)


@dataclass(frozen=True, slots=True)
class Delays:
    """How long packets of one direction took, in ns, if the offset is right: half of what both ways differ is unknown.

    Attributes
    ----------
    least_ns, median_ns
        The fastest packet, and what half of them do not exceed.
    """

    least_ns: int
    median_ns: int

    @property
    def waited_ns(self) -> int:
        """How much longer than the fastest one a packet takes as a rule: queues, and who wakes up."""
        return self.median_ns - self.least_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two clocks at one moment.

    Attributes
    ----------
    offset_ns, bound_ns
        By how much the second host's CLOCK_MONOTONIC is ahead, and how far that may be off.
    drift, drift_bound
        By how much faster it runs, s per s, likewise.
    """

    offset_ns: int
    bound_ns: int
    drift: float
    drift_bound: float


@dataclass(frozen=True, slots=True)
class History:
    """The offset over time.

    Attributes
    ----------
    at_ns
        int64, by the first host's CLOCK_MONOTONIC.
    offset_ns
        int64.
    bound_ns
        float64.
    """

    at_ns: Ns
    offset_ns: Ns
    bound_ns: Floats


@dataclass(frozen=True, slots=True)
class PairRow:
    """A pair of hosts within an interval, or over all of the time.

    Attributes
    ----------
    first, second
        The hosts.
    state
        One of `STATES`.
    why
        What has failed.
    now
        None if nothing is known.
    there, back
        From the first host to the second, and back; None without packets.
    probes, answered
        Sent, and answered so far.
    lost
        Stamps and packets.
    refused
        Packets that were not taken, by reason.
    changes
        How many times a clock was set or its frequency changed so much that another line began.
    stamps
        Whose: one of `STAMPS`; empty without packets.
    history
        None if nothing is known.
    """

    first: str
    second: str
    state: str
    why: str = ""
    now: Comparison | None = None
    there: Delays | None = None
    back: Delays | None = None
    probes: int = 0
    answered: int = 0
    lost: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0
    stamps: str = ""
    history: History | None = None


@dataclass(frozen=True, slots=True)
class PhcRow:
    """A hardware clock of a host.

    Attributes
    ----------
    name
        Of its device, and of what has it.
    ahead_ns, bound_ns
        By how much it is ahead of the first host's CLOCK_REALTIME. PTP's time is TAI: whole seconds more are usual.
    """

    name: str
    ahead_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host, and how right its wall clock is.

    Attributes
    ----------
    name, address
        As it is called, and where the others reach it.
    realtime_ns, realtime_bound_ns
        By how much its CLOCK_REALTIME is ahead of the first host's; None if nothing is known.
    synchronized
        A time daemon says that its CLOCK_REALTIME is right.
    max_error_ns
        To how much, by that daemon's word; None if there is none.
    tai_offset_s
        TAI minus UTC, as the kernel was told; 0 if it was not.
    daemons
        What runs there that sets clocks, and what it says.
    phcs
        Its hardware clocks.
    """

    name: str
    address: str
    realtime_ns: int | None
    realtime_bound_ns: int | None
    synchronized: bool
    max_error_ns: int | None
    tai_offset_s: int
    daemons: Sequence[str] = ()
    phcs: Sequence[PhcRow] = ()


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Somebody changed the clocks of a host.

    Attributes
    ----------
    host
        Its name.
    rate
        CLOCK_MONOTONIC and CLOCK_REALTIME run faster since by so much, s per s.
    step_ns
        CLOCK_REALTIME was set forward by so much.
    """

    host: str
    rate: float
    step_ns: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Three hosts around: the offsets would add up to nothing if all of them were right.

    Attributes
    ----------
    hosts
        Their names.
    off_ns, bound_ns
        What they add up to, and what their bounds allow.
    """

    hosts: tuple[str, str, str]
    off_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class ClockReport:
    """All of that.

    Attributes
    ----------
    kind
        ``interval`` or ``total``.
    time_ns
        When it ended, CLOCK_REALTIME of who asks.
    duration_s
        How long it was.
    pairs, hosts, loops, changes
        They.
    notes
        What else to know, a sentence each.
    """

    kind: str
    time_ns: int
    duration_s: float
    pairs: Sequence[PairRow]
    hosts: Sequence[HostRow]
    loops: Sequence[Loop]
    changes: Sequence[ChangeRow] = ()
    notes: Sequence[str] = ()
