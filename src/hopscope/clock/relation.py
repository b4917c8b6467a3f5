# SPDX-License-Identifier: Apache-2.0
"""How a device's clock relates to CLOCK_MONOTONIC: a line through readings, and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# What an adjustment of frequency between two readings may come to (NTP's limit is half of it); more is a step.
_SLEW: Final = 1e-3


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at one instant.

    Attributes
    ----------
    device_ns, monotonic_ns
        What they show.
    bound_ns
        The instants are no further apart than this.
    """

    device_ns: int
    monotonic_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class Relation:
    """CLOCK_MONOTONIC as a line over the device's clock.

    Attributes
    ----------
    reading
        The line goes through it.
    drift
        Seconds that CLOCK_MONOTONIC gains on the device's clock in one second of that.
    """

    reading: ClockReading
    drift: float

    @classmethod
    def through(cls, first: ClockReading, second: ClockReading) -> Relation:
        """Return the line through two readings; it stands on the second."""
        device_ns = second.device_ns - first.device_ns
        monotonic_ns = second.monotonic_ns - first.monotonic_ns
        return cls(second, (monotonic_ns - device_ns) / device_ns)

    def monotonic_ns(self, device_ns: int) -> int:
        """Return what CLOCK_MONOTONIC shows when the device's clock shows `device_ns`."""
        since_ns = device_ns - self.reading.device_ns
        return self.reading.monotonic_ns + since_ns + round(since_ns * self.drift)


class Track:
    """Follows a device's clock from reading to reading.

    Parameters
    ----------
    first, second
        The readings to begin with.

    Attributes
    ----------
    relation
        The line to convert by until the next reading.
    error_ns
        How far what was converted between the last two readings may be off. Both clocks run evenly in between, or the
        error at the ends is not the largest.
    was_set
        One of the clocks was set between the last two readings: nothing that was converted there can be used.
    """

    def __init__(self, first: ClockReading, second: ClockReading) -> None:
        self.was_set = not _plausible(first, second)
        self.relation = Relation(second, 0.0) if self.was_set else Relation.through(first, second)
        self.error_ns = second.bound_ns

    def advance(self, reading: ClockReading) -> None:
        """Take a reading, compare it with what the line said, and draw the next line."""
        last = self.relation.reading
        off_ns = abs(self.relation.monotonic_ns(reading.device_ns) - reading.monotonic_ns)
        allowed_ns = last.bound_ns + reading.bound_ns + _SLEW * (reading.monotonic_ns - last.monotonic_ns)
        self.was_set = off_ns > allowed_ns
        if self.was_set:
            # The frequency is that of before, most likely.
            self.relation = Relation(reading, self.relation.drift)
            self.error_ns = reading.bound_ns
        else:
            self.relation = Relation.through(last, reading)
            self.error_ns = max(last.bound_ns, off_ns + reading.bound_ns)


def _plausible(first: ClockReading, second: ClockReading) -> bool:
    device_ns = second.device_ns - first.device_ns
    monotonic_ns = second.monotonic_ns - first.monotonic_ns
    return device_ns > 0 and abs(monotonic_ns - device_ns) <= (first.bound_ns + second.bound_ns + _SLEW * monotonic_ns)
