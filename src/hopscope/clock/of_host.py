# SPDX-License-Identifier: Apache-2.0
"""The clocks of one host against each other, as curves that `join` takes beside those of pairs of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.clock.curve import Curve
from hopscope.clock.domain import Clock, ClockDomain
from hopscope.clock.relation import Track

if TYPE_CHECKING:
    from hopscope.clock.change import Look
    from hopscope.clock.relation import ClockReading

_SECOND: Final = 1_000_000_000
# How fast the frequency of a NIC's clock may change while a daemon steers it: 1 ppm in a second.
STEERED: Final = 1e-6


def walls(host: str, look: Look) -> list[Curve]:
    """Return CLOCK_REALTIME and, if the kernel knows it, CLOCK_TAI against CLOCK_MONOTONIC of a host.

    They are slewed alike, so that the differences hold until somebody sets the clock.
    """
    offset_ns, bound_ns = -look.to_monotonic.offset_ns, look.to_monotonic.bound_ns
    found = [fixed(ClockDomain(host, Clock.REALTIME), offset_ns, bound_ns, look.at_ns)]
    seconds = look.adjustment.tai_offset_s
    if seconds:
        found.append(fixed(ClockDomain(host, Clock.TAI), offset_ns + seconds * _SECOND, bound_ns, look.at_ns))
    return found


def phc(host: str, name: str, first: ClockReading, second: ClockReading) -> Curve:
    """Return a NIC's clock against CLOCK_MONOTONIC of its host, by two readings.

    A daemon that steers it may do so by `STEERED`, and `breaks` where it was set in between.
    """
    readings = (first, second)
    at = np.array([reading.monotonic_ns for reading in readings])
    offset = np.array([reading.device_ns - reading.monotonic_ns for reading in readings])
    base_ns = int(offset[0])
    value = (offset - base_ns).astype(np.float64)
    bound = np.array([float(reading.bound_ns) for reading in readings])
    apart = float(at[1] - at[0])
    rate, slack = np.full(2, (value[1] - value[0]) / apart), bound.sum() / apart + STEERED * apart / _SECOND
    was_set = Track(first, second).was_set
    if was_set:
        rate = np.zeros(2)
    breaks = np.array([was_set, False])
    domain = ClockDomain(host, Clock.PHC, name)
    possible = value, value - bound, value + bound, rate, rate - slack, rate + slack
    return Curve(ClockDomain(host), domain, base_ns, at, *possible, breaks, wander=STEERED)


def fixed(target: ClockDomain, offset_ns: int, bound_ns: int, at_ns: int) -> Curve:
    """Return a clock that is ahead of CLOCK_MONOTONIC of its host by a number that does not change."""
    still = np.zeros(1)
    possible = still, still - bound_ns, still + bound_ns
    at = np.array([at_ns])
    source = ClockDomain(target.host)
    return Curve(source, target, offset_ns, at, *possible, still, still, still, np.zeros(1, np.bool_), wander=0.0)
