# SPDX-License-Identifier: Apache-2.0
"""Read the kernel's counters beside a recording: at its start, at intervals, at its end."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from hopscope.trace.recorded_counters import rows, with_settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.kernel.counters.reader import CounterReader
    from hopscope.model.counters.readings import Readings
    from hopscope.trace.recorded_counters import Columns

# Reading takes at most this part of the time of a CPU: with many namespaces it is done less often.
_SHARE: Final = 0.02
# Readings that a flight recorder keeps.
_KEPT: Final = 60


class CounterLog:
    """Reads in a thread of its own, and hands out rows of the trace.

    Parameters
    ----------
    reader
        Used in the thread; the first time and the last by who begins and ends. Settings are read then only.
    put
        Given each reading's tables.
    interval_s
        Between two readings, at least.
    last_s
        Of a flight recorder: only readings of the last so many seconds are handed out, at the end.
    """

    def __init__(
        self,
        reader: CounterReader,
        put: Callable[[list[tuple[str, Columns]]], None],
        interval_s: float,
        last_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._put = put
        self._interval_s = interval_s if last_s is None else max(interval_s, last_s / _KEPT)
        self._last_ns = None if last_s is None else round(last_s * 1e9)
        self._kept: deque[Readings] = deque()
        self._before: Readings | None = None  # that was read
        self._written: Readings | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hopscope-counters", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Read a first time, and then at intervals."""
        self._take(settings=True)
        self._thread.start()

    def finish(self) -> None:
        """Read a last time, and hand out what is kept.

        Raises
        ------
        DiskFullError
            There was no room for a reading.
        """
        self.close()
        if self._error:
            raise self._error
        self._take(settings=True)
        while self._kept:
            self._write(self._kept.popleft())

    def kept(self) -> Iterator[tuple[str, Columns]]:
        """Yield the rows of the readings that are kept, which stay so; from any thread."""
        before: Readings | None = None
        for now in list(self._kept):
            yield from rows(before, now)
            before = now

    @property
    def newest(self) -> Readings | None:
        """The last reading; from any thread."""
        return self._before

    def close(self) -> None:
        """End the thread; again is allowed."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        pause_s = self._interval_s
        try:
            while not self._ends.wait(pause_s):
                took_ns = self._take(settings=False)
                pause_s = max(self._interval_s, took_ns / 1e9 / _SHARE)
        except BaseException as error:  # noqa: BLE001 # it is raised at the end, in the thread of who ends
            self._error = error

    def _take(self, *, settings: bool) -> int:
        """Read; say how long that took, in ns."""
        now = self._reader.read(settings=settings)
        if not settings and self._before:
            now = with_settings_of(self._before, now)
        if self._last_ns is None:
            self._write(now)
        else:
            self._kept.append(now)
            # The one before them says what counters were when they began.
            while len(self._kept) > 2 and self._kept[1].time_ns < now.time_ns - self._last_ns:
                self._kept.popleft()
        self._before = now
        return now.until_ns - now.time_ns

    def _write(self, now: Readings) -> None:
        self._put(list(rows(self._written, now)))
        self._written = now
