# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hopscope.clock.relation import ClockReading, Relation, Track

SECOND = 1_000_000_000


def reading(device_ns: int, *, offset_ns: int = 0, drift: float = 0.0, bound_ns: int = 0) -> ClockReading:
    """Return what clocks show whose relation is known."""
    return ClockReading(device_ns, device_ns + offset_ns + round(device_ns * drift), bound_ns)


@given(
    st.integers(-(1 << 62), 1 << 62),
    st.floats(-500e-6, 500e-6),
    st.integers(SECOND // 10, 100 * SECOND),
    st.integers(0, 100 * SECOND),
)
def test_an_injected_offset_and_drift_are_found_again(
    offset_ns: int, drift: float, apart_ns: int, later_ns: int
) -> None:
    first, second, third = (
        reading(at, offset_ns=offset_ns, drift=drift)
        for at in (SECOND, SECOND + apart_ns, SECOND + apart_ns + later_ns)
    )
    relation = Relation.through(first, second)
    assert abs(relation.drift - drift) <= 2 / apart_ns
    assert relation.monotonic_ns(second.device_ns) == second.monotonic_ns
    assert abs(relation.monotonic_ns(third.device_ns) - third.monotonic_ns) <= 2 * later_ns / apart_ns + 2


def test_a_stamp_from_before_the_reading_is_converted_as_well() -> None:
    relation = Relation.through(reading(SECOND, drift=100e-6), reading(2 * SECOND, drift=100e-6))
    assert relation.monotonic_ns(SECOND) == SECOND + 100_000


def test_the_error_is_what_the_line_was_off_and_the_readings_bounds() -> None:
    track = Track(reading(SECOND, bound_ns=300), reading(2 * SECOND, bound_ns=300))
    assert (track.error_ns, track.was_set) == (300, False)
    track.advance(reading(3 * SECOND, drift=0.0, offset_ns=-700, bound_ns=50))
    assert (track.error_ns, track.was_set) == (750, False)
    assert track.relation.drift == -700e-9
    # The next line stands on that reading and knows the drift.
    track.advance(reading(4 * SECOND, offset_ns=-1400, bound_ns=20))
    assert (track.error_ns, track.was_set) == (50, False)


def test_a_slew_is_within_the_error_and_a_step_is_told() -> None:
    track = Track(reading(SECOND), reading(2 * SECOND))
    track.advance(reading(3 * SECOND, offset_ns=900_000))
    assert (track.error_ns, track.was_set) == (900_000, False)
    track = Track(reading(SECOND), reading(2 * SECOND))
    track.advance(reading(3 * SECOND, offset_ns=1_100_000, bound_ns=10))
    assert track.was_set
    track.advance(reading(4 * SECOND, offset_ns=1_100_000, bound_ns=10))
    assert (track.error_ns, track.was_set) == (10, False)


def test_a_clock_that_is_set_back_or_far_ahead_is_told() -> None:
    for offset_ns in (-3600 * SECOND, 3600 * SECOND):
        track = Track(reading(2 * 3600 * SECOND), reading((2 * 3600 + 1) * SECOND))
        track.advance(ClockReading((2 * 3600 + 2) * SECOND + offset_ns, (2 * 3600 + 2) * SECOND, 10))
        assert track.was_set
        later = ClockReading((2 * 3600 + 3) * SECOND + offset_ns, (2 * 3600 + 3) * SECOND, 10)
        track.advance(later)
        assert (track.error_ns, track.was_set) == (10, False)


def test_a_clock_that_stands_or_races_cannot_be_followed() -> None:
    assert Track(reading(SECOND), ClockReading(SECOND, 2 * SECOND, 0)).was_set
    assert Track(reading(SECOND), ClockReading(0, 2 * SECOND, 0)).was_set
    assert Track(reading(SECOND), reading(2 * SECOND, drift=0.01)).was_set
    assert not Track(reading(SECOND), reading(2 * SECOND, drift=400e-6)).was_set
