# SPDX-License-Identifier: Apache-2.0
"""What is known of a host's clocks from one look at them to the next, and what somebody changed in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.clock.adjustment import Adjustment
    from hopscope.clock.phc import Domain
    from hopscope.clock.relation import ClockReading
    from hopscope.clock.samples import Ns, Samples

# Less than this is as good as none: an oscillator does as much by itself within half a second.
LEAST: Final = 1e-9
# Two seconds, in which two clocks drift apart by no more than that (`hopscope.clock.bounds.STEEPEST`).
_NEAR_NS: Final = 2_000_000_000
_DRIFTED_NS: Final = 2_400_000


class Look(NamedTuple):
    """A host's clocks at one moment.

    Attributes
    ----------
    adjustment
        How the kernel runs them.
    to_monotonic
        CLOCK_MONOTONIC minus CLOCK_REALTIME.
    phcs
        Hardware clocks by name, each with CLOCK_MONOTONIC at one instant.
    """

    adjustment: Adjustment
    to_monotonic: Domain
    phcs: Mapping[str, ClockReading] = {}

    @property
    def at_ns(self) -> int:
        """When, CLOCK_MONOTONIC."""
        return self.adjustment.at_ns


class Change(NamedTuple):
    """Somebody, such as a time daemon, changed a host's clocks.

    Attributes
    ----------
    from_ns, until_ns
        Between these two moments, CLOCK_MONOTONIC of that host.
    rate
        CLOCK_MONOTONIC runs faster since by so much, s per s; infinite if nobody knows.
    step_ns
        CLOCK_REALTIME was set forward by so much, as far as can be seen. CLOCK_MONOTONIC is never set.
    """

    from_ns: int
    until_ns: int
    rate: float
    step_ns: int = 0

    def shifted(self, offset_ns: int, more_ns: int) -> Change:
        """Return it in the time of a clock that is ahead by that, give or take `more_ns`."""
        return self._replace(from_ns=self.from_ns + offset_ns - more_ns, until_ns=self.until_ns + offset_ns + more_ns)


def turn(changes: Iterable[Change | None]) -> float:
    """Return by how much some changes turn the ratio of two clocks' frequencies, at most, without its sign."""
    return sum(abs(change.rate) for change in changes if change is not None)


def clock_changes(samples: Samples, first: Iterable[Change], second: Iterable[Change]) -> list[Change]:
    """Return the changes of either clock, converted to the first clock's times, for `smooth`."""
    most = samples.upper()[1], samples.there.received_ns
    least = samples.lower()[1], samples.back.sent_ns
    return [*first, *(_on_first(change, most, least) for change in second)]


def _on_first(change: Change, most: tuple[Ns, Ns], least: tuple[Ns, Ns]) -> Change:
    # The packets of then tell the difference; of all packets where there are none: it may have drifted since.
    high, low = (values[np.abs(at_ns - change.until_ns) <= _NEAR_NS] for values, at_ns in (most, least))
    if len(high) and len(low):
        ends = int(high.min()), int(low.max())
        more_ns = abs(ends[0] - ends[1]) // 2 + _DRIFTED_NS
    else:
        every = np.concatenate([most[0], least[0]])
        if not len(every):
            return change
        ends = int(every.min()), int(every.max())
        more_ns = (ends[1] - ends[0]) // 2
    return change.shifted(-(sum(ends) // 2), more_ns + 1)


def between(before: Look, after: Look) -> Change | None:
    """Return what was changed between two looks, None if nothing was."""
    rate = after.adjustment.rate - before.adjustment.rate
    step_ns = before.to_monotonic.offset_ns - after.to_monotonic.offset_ns
    if abs(step_ns) <= before.to_monotonic.bound_ns + after.to_monotonic.bound_ns:
        step_ns = 0
    if abs(rate) < LEAST and not step_ns:
        return None
    return Change(before.at_ns, after.at_ns, rate, step_ns)
