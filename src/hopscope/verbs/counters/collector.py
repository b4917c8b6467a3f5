# SPDX-License-Identifier: Apache-2.0
"""Count what the kernel's counters count, interval after interval; see ``hopscope counters``."""

from __future__ import annotations

import fnmatch
import time
from typing import TYPE_CHECKING, Final

from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.errors import UsageError
from hopscope.kernel.capabilities import unseen_namespaces
from hopscope.kernel.counters.reader import OF_HOST, PER_NAMESPACE, CounterReader
from hopscope.model.counters.deltas import moves, seconds_between
from hopscope.model.counters.names import find, near
from hopscope.model.counters.readings import HOST
from hopscope.model.counters.rows import CounterSnapshot, Sums, Wanted, folded, rows_of
from hopscope.model.counters.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from hopscope.model.counters.deltas import Move
    from hopscope.model.counters.readings import Readings
    from hopscope.model.counters.rows import CounterRow
    from hopscope.model.snapshot import PlanRow

# So many restarted counters are named one by one.
_NAMED: Final = 3


class CounterCollector:
    """Reads all counters, and says what moved; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    wanted
        Which counters are shown.
    namespaces
        Inodes of the network namespaces that are read; None for all that there are at each reading.
    shown
        Filter → its values as the user wrote them.
    """

    def __init__(
        self, wanted: Wanted, namespaces: Collection[int] | None = None, shown: Mapping[str, str] | None = None
    ) -> None:
        self._wanted = wanted
        self._shown = shown or {}
        self._reader = CounterReader(namespaces, _sources(wanted))
        self._names: dict[int, str] = {}
        self._sums = Sums()
        self._said: list[str] = []
        self._come: set[int] = set()
        self._gone: set[int] = set()

    def __enter__(self) -> Self:
        """Read for the first time: what was counted before does not count."""
        self._cpu_s = [time.process_time()]
        self._first = self._last = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go of what reading holds."""
        self._reader.close()

    def plan(self) -> list[PlanRow]:
        """Return nothing: nothing is attached."""
        return []

    def measure_cost(self, window_s: float) -> None:
        """Wait; what reading costs is known without."""
        time.sleep(window_s)

    def check_names(self, patterns: Collection[str]) -> None:
        """Return if every pattern is of some counter, here or in the tables of explanations.

        Raises
        ------
        UsageError
            One is of none; names what was meant, perhaps.
        """
        if not patterns:
            return
        names = {folded(key)[0].name.lower() for key in self._reader.read().numbers}
        for pattern in patterns:
            if not fnmatch.filter(names, pattern.lower()) and not find(pattern):
                guesses = near(pattern)
                raise UsageError(
                    f"No counter matches {pattern}",
                    f"Did you mean {', '.join(guesses)}?" if guesses else "Patterns such as '*Drop*' are also accepted",
                )

    def interval(self) -> CounterSnapshot:
        """Return what was counted since the last call."""
        before, self._last = self._last, self._read()
        moved = list(moves(before, self._last))
        self._sums.add(moved)
        gone = before.namespaces.keys() - self._last.namespaces.keys()
        come = self._last.namespaces.keys() - before.namespaces.keys()
        self._gone |= gone
        self._come |= come
        return self._snapshot("interval", before, moved, [*self._changes(come, gone), *self._news()])

    def total(self) -> CounterSnapshot:
        """Return what was counted since the start, as of the last :meth:`interval`."""
        notes = [*self._changes(self._come, self._gone), *self._unread()]
        return self._snapshot("total", self._first, self._sums.moves(), notes)

    def _read(self) -> Readings:
        readings = self._reader.read()
        self._names |= readings.namespaces
        self._cpu_s.append(time.process_time())
        return readings

    def _snapshot(self, kind: str, before: Readings, moved: Iterable[Move], notes: list[str]) -> CounterSnapshot:
        now = self._last
        rows, read, left_out = rows_of(moved, now, self._wanted, self._names)
        duration_s = seconds_between(before, now)
        used_s = self._cpu_s[-1] - self._cpu_s[1 if kind == "total" else -2]
        return CounterSnapshot(
            kind="total" if kind == "total" else "interval",
            started_ns=before.time_ns + wall_offset_ns(),
            duration_s=duration_s,
            rows=rows,
            read=read,
            left_out=left_out,
            reader_cpu_percent=100 * used_s / duration_s if duration_s else 0.0,
            filters=self._shown,
            notes=[*_restarted(rows), *notes],
        )

    def _changes(self, come: Collection[int], gone: Collection[int]) -> list[str]:
        """Return what is not known of namespaces that were not there all the time."""
        kinds = (("begun", come, "before its first reading"), ("ended", gone, "after its last reading"))
        names = {kind: ", ".join(sorted(self._names[inode] for inode in inodes)) for kind, inodes, _ in kinds}
        return [f"{kind}: {names[kind]}: counts {when} are unknown" for kind, inodes, when in kinds if inodes]

    def _news(self) -> list[str]:
        """Return what cannot be read, if that has not been said yet."""
        unread = self._unread()
        news = [text for text in unread if text not in self._said]
        self._said = unread
        return news

    def _unread(self) -> list[str]:
        """Return a sentence for each reason that something is missing for."""
        whole: dict[str, set[str]] = {}
        for each in self._last.unread:
            # What this kernel does not have, nobody misses; what is asked for by layer is.
            if each.reason.startswith("this kernel has no") and not self._wanted.layers:
                continue
            name = "" if each.netns == HOST else self._names.get(each.netns, f"netns {each.netns}")
            what = name if "entered" in each.reason else f"{each.source}{f' of {name}' if name else ''}"
            whole.setdefault(each.reason, set()).add(what)
        sentences = [f"not read: {', '.join(sorted(what))}: {reason}" for reason, what in whole.items()]
        return [*sentences, *filter(None, [unseen_namespaces()])]


def _sources(wanted: Wanted) -> list[str]:
    """Return the sources that have a counter of the layers asked for, or may have."""
    known = [name for name in (*PER_NAMESPACE, *OF_HOST) if SOURCES[name].kind != "setting"]
    return [name for name in known if not wanted.layers or SOURCES[name].layer in {"", *wanted.layers}]


def _restarted(rows: Iterable[CounterRow]) -> list[str]:
    named = [f"{row.subject} {row.name}".strip() for row in rows if row.event == "restarted"]
    if not named:
        return []
    rest = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
    what = f"{', '.join(named[:_NAMED])}{rest}"
    return [f"reset: {what} decreased (was the driver reloaded?): the increase in this interval is unknown"]
