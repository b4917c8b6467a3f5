# SPDX-License-Identifier: Apache-2.0
"""What measuring costs: the kernel's statistics of our programs, switched on for a small part of the time."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import LoadError
from hopscope.libbpf import RunCounters, enable_stats
from hopscope.model.snapshot import Overhead, ProgramCost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hopscope.libbpf import Program


# How long the statistics are on, and off, where nobody waits for them; and until they are on for the first time.
_WINDOW_S: Final = 0.01
_BETWEEN_WINDOWS_S: Final = 5.0
_FIRST_WINDOW_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class CostReading:
    """Cumulative figures at one instant; arrays have an element a program.

    Attributes
    ----------
    hits, time_ns
        Runs and their time while the statistics were on.
    missed
        Runs that the kernel suppressed because of recursion, all the time.
    window_s
        How long the statistics were on.
    reader_s
        CPU time of this process.
    attached_s
        How long the programs were attached.
    at_s
        CLOCK_MONOTONIC.
    """

    hits: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    missed: NDArray[np.int64]
    window_s: float
    reader_s: float
    attached_s: float
    at_s: float


class CostMeter:
    """Samples the cost of programs.

    The statistics cost two looks at the clock a run themselves, which are part of what they say. They are on only
    during :meth:`sample`; hits of the whole time are scaled up from that.

    Attributes
    ----------
    last_rate
        CPU time a second that they took when it was sampled last.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        self.last_rate = 0.0
        self._programs = list(programs)
        self._counters = RunCounters(self._programs)
        self._hits = np.zeros(len(self._programs), np.int64)
        self._time_ns = np.zeros(len(self._programs), np.int64)
        self._window_s = 0.0
        self._attached_s = 0.0
        self._attached_at_s: float | None = time.monotonic()

    def detached(self) -> None:
        """Take note that the programs are no longer attached."""
        self._attached_s, self._attached_at_s = self._time_attached_s(), None

    def attached(self) -> None:
        """Take note that they are attached again."""
        self._attached_at_s = time.monotonic()

    def sample(self, window_s: float) -> tuple[int, int, float]:
        """Wait, as :func:`sample` does; return runs, their time in ns, and how long the statistics were on, in s."""
        hits, time_ns, before_s = self._hits, self._time_ns, self._window_s
        sample([self], window_s)
        return int((self._hits - hits).sum()), int((self._time_ns - time_ns).sum()), self._window_s - before_s

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Add up what the programs do during the block, in which the statistics are switched on."""
        started_s = time.monotonic()
        before = self._counters.read()
        yield
        after = self._counters.read()
        window_s = time.monotonic() - started_s
        self._window_s += window_s
        self._hits = self._hits + after[0] - before[0]
        self._time_ns = self._time_ns + after[1] - before[1]
        self.last_rate = float((after[1] - before[1]).sum()) / 1e9 / window_s

    def read(self) -> CostReading:
        """Return the cumulative figures."""
        _, _, missed = self._counters.read()
        return CostReading(
            hits=self._hits,
            time_ns=self._time_ns,
            missed=missed,
            window_s=self._window_s,
            reader_s=time.process_time(),
            attached_s=self._time_attached_s(),
            at_s=time.monotonic(),
        )

    def overhead(self, before: CostReading, after: CostReading) -> Overhead:
        """Return the cost between two readings."""
        duration_s = max(after.at_s - before.at_s, 1e-9)
        window_s = after.window_s - before.window_s
        attached_s = after.attached_s - before.attached_s
        scale = attached_s / window_s if window_s else 0.0
        known = window_s or not attached_s
        hits, time_ns = after.hits - before.hits, after.time_ns - before.time_ns
        missed = after.missed - before.missed
        return Overhead(
            hits=round(int(hits.sum()) * scale),
            ns_per_hit=_mean(int(time_ns.sum()), int(hits.sum())),
            bpf_cpu_percent=int(time_ns.sum()) * scale / (duration_s * 1e9) * 100 if known else None,
            reader_cpu_percent=(after.reader_s - before.reader_s) / duration_s * 100,
            missed=int(missed.sum()),
            by_program=[
                ProgramCost(
                    program.name,
                    hits=round(int(hits[i]) * scale),
                    ns_per_hit=_mean(int(time_ns[i]), int(hits[i])),
                    missed=int(missed[i]),
                )
                for i, program in enumerate(self._programs)
            ],
        )

    def _time_attached_s(self) -> float:
        running_s = 0.0 if self._attached_at_s is None else time.monotonic() - self._attached_at_s
        return self._attached_s + running_s


class CostWindows:
    """Samples the cost of programs now and then, without waiting for it.

    Parameters
    ----------
    meter
        Of the programs.

    Attributes
    ----------
    rate
        CPU time a second that they took in the last window.
    """

    def __init__(self, meter: CostMeter) -> None:
        self.rate = 0.0
        self._meter = meter
        self._first = meter.read()
        self._window = contextlib.ExitStack()
        self._is_open = self._has_looked = False
        self._next_s = time.monotonic() + _FIRST_WINDOW_S

    def look(self) -> None:
        """Begin a window, or end it, if it is time; to be called again and again."""
        if time.monotonic() < self._next_s:
            return
        if self._is_open:
            self.close()
            return
        self._has_looked, self._next_s = True, time.monotonic() + _WINDOW_S
        with contextlib.suppress(LoadError):  # before 5.8, or without CAP_SYS_ADMIN
            self._window.enter_context(enable_stats())
            self._window.enter_context(self._meter.watched())
            self._is_open = True

    def overhead(self) -> Overhead | None:
        """Return the cost from the beginning on; None: there was no time for a window."""
        self.close()
        return self._meter.overhead(self._first, self._meter.read()) if self._has_looked else None

    def close(self) -> None:
        """End the window; again is allowed."""
        self._window.close()
        if self._is_open:
            self.rate = self._meter.last_rate
        self._is_open, self._next_s = False, time.monotonic() + _BETWEEN_WINDOWS_S


def sample(meters: Iterable[CostMeter], window_s: float) -> None:
    """Wait for `window_s` with the statistics switched on, or without where the kernel has none (before 5.8)."""
    meters = list(meters)
    try:
        with enable_stats() if meters else contextlib.nullcontext(), contextlib.ExitStack() as stack:
            for meter in meters:
                stack.enter_context(meter.watched())
            time.sleep(window_s)
    except LoadError:
        time.sleep(window_s)


def _mean(total: int, count: int) -> float | None:
    return total / count if count else None
