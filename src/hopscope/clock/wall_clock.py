# SPDX-License-Identifier: Apache-2.0
"""What has to be added to CLOCK_MONOTONIC to have the time of day."""

from __future__ import annotations

import time
from typing import Final

_TRIES: Final = 5


def wall_offset_ns() -> int:
    """Return CLOCK_REALTIME minus CLOCK_MONOTONIC, ns, as of now.

    The wall clock is read between two looks at the other one; of a few such readings the shortest counts, and the
    offset is wrong by half its length at most: well below a microsecond, if nothing interrupts all of them. It changes
    when the wall clock is set or slewed.
    """
    shortest_ns, offset_ns = min(_reading() for _ in range(_TRIES))
    del shortest_ns
    return offset_ns


def _reading() -> tuple[int, int]:
    before_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    after_ns = time.monotonic_ns()
    return after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2
