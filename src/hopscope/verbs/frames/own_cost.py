# SPDX-License-Identifier: Apache-2.0
"""Which part of a CPU this process takes, over the last seconds."""

from __future__ import annotations

import time
from collections import deque


class OwnCost:
    """Looks at the CPU clock of this process, which has all of its threads, those that have ended as well.

    Parameters
    ----------
    over_s
        The least time that is looked back to, once so much has passed: what is done less often than each interval is
        in each figure then, and in none of them alone.
    """

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self._looks: deque[tuple[float, float]] = deque()
        self.begin()

    def begin(self) -> None:
        """Forget what was before."""
        self._looks.clear()
        self._looks.append((time.monotonic(), time.process_time()))

    def percent(self) -> float:
        """Return what it took since the latest call that is so long ago, or since the beginning: % of a CPU."""
        now_s, cpu_s = time.monotonic(), time.process_time()
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - self._over_s:
            self._looks.popleft()
        before_s, before_cpu_s = self._looks[0]
        self._looks.append((now_s, cpu_s))
        return 100 * (cpu_s - before_cpu_s) / max(now_s - before_s, 1e-9)
