# SPDX-License-Identifier: Apache-2.0
"""From the rings to a trace: take records in time, and turn them into rows and files in another thread."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

from hopscope.errors import DiskFullError, HopscopeError, KernelError
from hopscope.kernel.counters.reader import CounterReader
from hopscope.live.recorder.captures import CAPTURE
from hopscope.store.capture import Captured, CaptureWriter
from hopscope.store.counts import LOSS_TABLES
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.tables import FILE_S
from hopscope.store.unrecorded import CLASSES, CLASSES_OPTION
from hopscope.store.writer import TraceWriter
from hopscope.term.format import plural
from hopscope.term.recording import Recording
from hopscope.trace.gaps import class_note
from hopscope.trace.recorded_counters import ROW_BYTES
from hopscope.verbs.record.backlog import Backlog
from hopscope.verbs.record.counters import CounterLog
from hopscope.verbs.record.flight import Kept, Watch
from hopscope.verbs.record.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import TracebackType

    from hopscope.live.recorder.collector import Array, Taken
    from hopscope.model.snapshot import Overhead
    from hopscope.store.destination import Destination
    from hopscope.store.meta import Metadata
    from hopscope.verbs.record.flight import Trigger

Rows: TypeAlias = "list[tuple[str, dict[str, Array]]]"
# With when it was begun to be taken.
_Work: TypeAlias = "tuple[int, Taken | Rows]"

# As of nice(1).
_PRIORITY: Final = -15


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop by itself; None: never."""

    duration_s: float | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Flight:
    """Keep the last seconds, and write them when a trigger is seen, or at the end.

    Attributes
    ----------
    last_s
        How far back.
    most_bytes
        Of memory.
    triggers
        Any of them ends the recording.
    """

    last_s: float
    most_bytes: int
    triggers: Sequence[Trigger] = ()


@contextlib.contextmanager
def prior() -> Iterator[None]:
    """Let the threads of this process go before those that they watch: they need little, but in time.

    All of them: the one that writes has Python's lock now and then, for which the one that reads would have to wait.
    """
    before: dict[int, int] = {}
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile; without CAP_SYS_NICE
            thread = int(path.name)
            before[thread] = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, _PRIORITY)
    try:
        yield
    finally:
        for thread, priority in before.items():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, priority)


class Source(Protocol):
    """Where events come from: what :class:`~hopscope.live.recorder.collector.Recorder` offers, once entered."""

    @property
    def namespaces(self) -> Sequence[int] | None:
        """Inodes of the network namespaces of which events come; None: all."""

    @property
    def captures(self) -> bool:
        """Whether there are bytes of frames."""

    @property
    def has_other_rings(self) -> bool:
        """Whether :meth:`fullness` says nothing of some rings."""

    def not_granted(self) -> list[str]:
        """Return points that cannot be attached."""

    def notes(self) -> list[str]:
        """Return sentences on what is missing, at the start."""

    def metadata(self) -> Metadata:
        """Return what the trace says of itself."""

    def now_ns(self) -> int:
        """Return the time, by the clock of events."""

    def take(self) -> Taken:
        """Take what has come: quick."""

    def rows(self, taken: Taken) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield rows of what was taken; in another thread."""

    def fullness(self) -> float:
        """Return how full the fullest ring is, 0 to 1."""

    def stop(self) -> None:
        """Have the next :meth:`take` give the rest."""

    def lost_by_now(self) -> int:
        """Return how many events were lost; from any thread."""

    def missed(self) -> int:
        """Return how many runs of programs the kernel suppressed."""

    def look_at_cost(self) -> None:
        """Measure what programs cost, now and then; to be called again and again."""

    def cost(self) -> Overhead | None:
        """Return what recording has cost so far; None: it is not known."""

    def ended_ns(self, drained_ns: int) -> int:
        """Return when the recording ended, of which :meth:`take` was called last at a time."""

    def remarks(self) -> list[str]:
        """Return a sentence on each thing that is missing and no event, at the end."""


class Pipeline:
    """One recording; a context manager that closes its trace, however it ends.

    Parameters
    ----------
    recorder
        Attached.
    destination
        Where the trace goes.
    flight
        Keep the last seconds only.
    counters_s
        Read the kernel's counters so often; None: never.
    backlog_bytes
        Most memory for records that are taken and not written yet.

    Attributes
    ----------
    events
        Rows of events that were handed to the trace.
    trigger
        The one that was seen.
    """

    def __init__(
        self,
        recorder: Source,
        destination: Destination,
        *,
        flight: Flight | None,
        counters_s: float | None,
        backlog_bytes: int,
    ) -> None:
        self._recorder = recorder
        self._destination = destination
        self._flight = flight
        self._counters_s = counters_s
        self._kept = Kept(round(flight.last_s * 1e9), flight.most_bytes) if flight else None
        self._watch = Watch(flight.triggers) if flight and flight.triggers else None
        self._backlog_bytes = backlog_bytes
        self._capture: CaptureWriter | None = None
        self._counters: CounterLog | None = None
        self.events = 0
        self._lost = 0
        self._event_tables: set[str] = set()
        self._classes: dict[str, tuple[int, int]] = {}
        self._error: DiskFullError | None = None
        self.trigger: Trigger | None = None

    def __enter__(self) -> Self:
        for trigger in self._flight.triggers if self._flight else ():
            trigger.require_attached(self._recorder.not_granted())
        with contextlib.ExitStack() as stack:
            metadata = self._recorder.metadata()
            self._classes = dict.fromkeys(metadata.options.get(CLASSES_OPTION) or (), (0, 0))
            self._writer = stack.enter_context(TraceWriter(self._destination, metadata))
            reader = stack.enter_context(CounterReader(self._recorder.namespaces)) if self._counters_s else None
            if self._recorder.captures:
                offset_ns = metadata.realtime_ns - metadata.started_ns
                self._capture = stack.enter_context(CaptureWriter(self._destination.capture(), offset_ns))
            self._started_s = self._marked_s = time.monotonic()
            self._drained_ns = metadata.started_ns
            self._backlog: Backlog[_Work] = Backlog(self._keep, self._backlog_bytes)
            stack.callback(self._end_threads)
            self.drain()
            if reader and self._counters_s:
                last_s = self._flight.last_s if self._flight else None
                self._counters = CounterLog(reader, self._put_rows, self._counters_s, last_s)
                self._counters.start()
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, traceback)

    def run(self, wait: Callable[[float], bool], limits: Limits, each: Callable[[], None]) -> bool:
        """Record; say whether something asked to stop, rather than a limit or a trigger.

        Parameters
        ----------
        wait
            Waits for so many seconds; returns True, and at once, when it is time to stop.
        limits
            When to stop by itself.
        each
            Called again and again.
        """
        end_s = self._started_s + limits.duration_s if limits.duration_s else float("inf")
        most_bytes = limits.size_bytes or float("inf")
        pace = Pace(self._recorder)
        while not wait(min(pace.pause_s, max(end_s - time.monotonic(), 0))):
            if pace.is_due():
                self.drain()
                pace.emptied()
            self._recorder.look_at_cost()
            if self.trigger or self._error or time.monotonic() >= end_s or self._writer.bytes_written >= most_bytes:
                return False
            each()
        return True

    def drain(self) -> None:
        """Take what is in the rings, for another thread to write."""
        # What was being written when the rings were read before is there by now.
        complete_ns, self._drained_ns = self._drained_ns, self._recorder.now_ns()
        taken = self._recorder.take()
        self._backlog.put((complete_ns, taken), taken.size_bytes)

    def finish(self) -> Recording:
        """Complete the trace, and say what there is.

        Raises
        ------
        DiskFullError
            There is no room for the rest.
        """
        self._recorder.stop()
        self.drain()
        failed = self._finish_counters()
        self._backlog.close()
        for table, columns in self._kept.take() if self._kept else ():
            self._write(table, columns)
        if self.trigger:
            self._writer.metadata.options["trigger"] = self.trigger.text
        self._writer.metadata.missed = self._recorder.missed()
        if overhead := self._recorder.cost():
            self._writer.metadata.cost = {
                "bpf_cpu_percent": overhead.bpf_cpu_percent,
                "reader_cpu_percent": overhead.reader_cpu_percent,
                "ns_per_hit": overhead.ns_per_hit,
            }
        # Not when all of this is done: what happened since then is still in the rings.
        self._close(self._recorder.ended_ns(self._drained_ns))
        if failed:
            raise KernelError(
                f"The kernel's counters could not be read to the end: {failed.strerror}; all else is in the trace",
                "Raise the limit of open files (ulimit -n)" if failed.errno == errno.EMFILE else "",
            ) from failed
        # What the trace says itself: a flight recorder has forgotten older losses with the events around them.
        return replace(self.now(), lost=self._lost, cost=self._writer.metadata.cost)

    def _finish_counters(self) -> OSError | None:
        try:
            if self._counters:
                self._counters.finish()
        except OSError as error:
            return error
        return None

    def _close(self, ended_ns: int) -> None:
        try:
            self._writer.close("stopped: the disk is full" if self._error else "complete", ended_ns)
        except DiskFullError as error:
            self._error = self._error or error
        if self._error:
            written = sum(self._writer.rows_written[table] for table in self._event_tables)
            raise DiskFullError(
                f"{self._error.what}: {self.events - written:,} of {plural(self.events, 'event')} are not in the trace",
                self._error.next_step,
            ) from self._error

    def now(self) -> Recording:
        """Say how far it is; may be called from any thread."""
        return Recording(
            elapsed_s=time.monotonic() - self._started_s,
            events=self.events,
            lost=self._recorder.lost_by_now(),
            size_bytes=self._writer.bytes_written + (self._capture.bytes_written if self._capture else 0),
        )

    def remarks(self) -> list[str]:
        """Return a sentence on each thing that a user should know of, at the end."""
        found = []
        if self.trigger:
            found.append(f"trigger: {self.trigger.text}")
        if self._kept and self._kept.cut:
            found.append("the memory limit did not allow keeping all of the last seconds (--flight-memory)")
        if missed := self._writer.metadata.missed:
            found.append(
                f"missed: {plural(missed, 'event')}, because the kernel suppressed the BPF program (recursion)"
            )
        found += [class_note(name, *counts) for name, counts in self._classes.items()]
        return [*found, *self._recorder.remarks()]

    def _put_rows(self, rows: Rows) -> None:
        size_bytes = ROW_BYTES * sum(len(next(iter(columns.values()))) for _, columns in rows)
        self._backlog.put((0, rows), size_bytes)

    def _keep(self, work: _Work) -> None:
        """Move what was taken to the trace, or to what is kept."""
        complete_ns, taken = work
        if isinstance(taken, list):  # of counters, who keep theirs
            for table, columns in taken:
                self._write(table, columns)
            return
        seen = []
        for table, columns in self._recorder.rows(taken):
            for each in self._kept.add(table, columns) if self._kept else ((table, columns),):
                self._write(*each)
            if self._watch:
                seen.append((table, columns))
        self._rotate(complete_ns)
        if self._watch and not self.trigger:
            self.trigger = self._watch.seen(seen)

    def _rotate(self, complete_ns: int) -> None:
        if self._error:
            return
        try:
            self._writer.rotate()
            if not self._kept and time.monotonic() - self._marked_s >= FILE_S:
                self._writer.mark(complete_ns)
                self._marked_s = time.monotonic()
        except DiskFullError as error:
            self._error = error

    def _write(self, table: str, columns: dict[str, Array]) -> None:
        if _has_events(table, columns):
            self.events += len(columns["time_ns"])
            self._event_tables.add(table)
        if table in LOSS_TABLES:
            self._lost += int(columns["lost"].sum())
        if table == CLASSES.name:
            for name, *more in zip(*(columns[each].tolist() for each in ("class", "events", "lost")), strict=True):
                events, lost = self._classes[name]
                self._classes[name] = events + more[0], lost + more[1]
        if not self._error:
            try:
                self._append(table, columns)
            except DiskFullError as error:
                self._error = error  # from here on events are only counted

    def _append(self, table: str, columns: dict[str, Array]) -> None:
        if self._capture and table == CAPTURE:
            self._capture.write(Captured(**columns))
            return
        self._writer.append(table, columns)
        if self._capture and table == "devices":
            self._capture.learn(columns)

    def _end_threads(self) -> None:
        if self._counters:
            self._counters.close()
        with contextlib.suppress(HopscopeError):  # it was raised before
            self._backlog.close()


def _has_events(table: str, columns: Collection[str]) -> bool:
    return table in EVENT_TABLES or (table.startswith("e_") and "time_ns" in columns)
