# SPDX-License-Identifier: Apache-2.0
"""Record until it is enough: move rows from the collector to the trace, and say how it goes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.cli.backlog import Backlog
from hopscope.cli.child import exit_code, running
from hopscope.cli.stop import stop_on_signal
from hopscope.collectors.flight import Kept, Watch
from hopscope.collectors.record import CAPTURE
from hopscope.errors import DiskFullError
from hopscope.store.capture import FILE as CAPTURE_FILE
from hopscope.store.capture import Captured, CaptureWriter
from hopscope.store.writer import TraceWriter
from hopscope.views.recording import Recording, render_end, render_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.cli.stop import Stop
    from hopscope.collectors.flight import Trigger
    from hopscope.collectors.record import Array, Recorder, Taken

EVENT_TABLES: Final = frozenset({"packets", "sockets", "cpu"})
# How long to let the rings fill: so long that a reading is worth its price, so short that they stay half empty.
_MOST_S: Final = 0.04
_LEAST_S: Final = 0.002
_FULL: Final = 0.25
_PROGRESS_S: Final = 1.0
# Of records that are taken and not written yet.
_BACKLOG_BYTES: Final = 256 << 20
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


def record(recorder: Recorder, folder: Path, limits: Limits, flight: Flight | None, command: Sequence[str]) -> int:
    """Record until the command ends, a limit is reached, a trigger is seen or a signal comes.

    Returns
    -------
    int
        The exit code: that of the command, as a shell gives it, unless the command was ended before its time.

    Raises
    ------
    DiskFullError
        There is no room for more; what was recorded can be read.
    UsageError
        The folder cannot be used, or the command not be started.
    """
    also = (signal.SIGQUIT,) if flight else ()
    with stop_on_signal(*also) as stop, contextlib.ExitStack() as stack:
        with _prior():  # the rings fill from their first moment on
            stack.enter_context(recorder)
            writer = stack.enter_context(TraceWriter(folder, recorder.metadata()))
            work = _Recording(recorder, writer, flight)
            stack.callback(work.close)
            work.drain()
        if missing := recorder.not_granted():
            sys.stderr.write(f"not granted by this kernel: {', '.join(missing)} (`hopscope probes` says why)\n")
        # The command begins with the priority that it would have without us.
        with running(command, stop, None) as child, _prior():
            ended = work.run(stop, limits)
        work.finish()
    return 0 if child is None or not ended else exit_code(child)


@contextlib.contextmanager
def _prior() -> Iterator[None]:
    """Let the threads of this process go before those that they watch: they need little, but in time.

    All of them: the one that writes has Python's lock now and then, for which the one that reads would have to wait.
    """
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    before = {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
    with contextlib.suppress(PermissionError):  # without CAP_SYS_NICE
        for thread in threads:
            os.setpriority(os.PRIO_PROCESS, thread, _PRIORITY)
    try:
        yield
    finally:
        for thread, priority in before.items():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.setpriority(os.PRIO_PROCESS, thread, priority)


class _Recording:
    """The state of one recording."""

    def __init__(self, recorder: Recorder, writer: TraceWriter, flight: Flight | None) -> None:
        self._recorder = recorder
        self._writer = writer
        self._kept = Kept(round(flight.last_s * 1e9), flight.most_bytes) if flight else None
        self._watch = Watch(flight.triggers) if flight and flight.triggers else None
        self._trigger: Trigger | None = None
        self._capture: CaptureWriter | None = None
        if recorder.captures:
            began = writer.metadata
            self._capture = CaptureWriter(writer.folder / CAPTURE_FILE, began.realtime_ns - began.started_ns)
        self._backlog = Backlog(self._keep, _BACKLOG_BYTES)
        self._events = 0
        self._started_s = time.monotonic()
        self._shown_s, self._shown_events = self._started_s, 0
        self._live = sys.stderr.isatty()

    def run(self, stop: Stop, limits: Limits) -> bool:
        """Record; say whether something asked to stop, rather than a limit."""
        end_s = self._started_s + limits.duration_s if limits.duration_s else float("inf")
        pause_s = _LEAST_S
        while not stop.wait(min(pause_s, max(end_s - time.monotonic(), 0))):
            self.drain()
            fullest = max(self._recorder.fullest, _FULL * _LEAST_S / _MOST_S)
            pause_s = min(max(pause_s * _FULL / fullest, _LEAST_S), _MOST_S)
            if (
                self._trigger
                or time.monotonic() >= end_s
                or self._writer.bytes_written >= (limits.size_bytes or float("inf"))
            ):
                return False
            if self._live and time.monotonic() - self._shown_s >= _PROGRESS_S:
                self._show()
        return True

    def drain(self) -> None:
        """Take what is in the rings, for another thread to write."""
        taken = self._recorder.take()
        self._backlog.put(taken, taken.size_bytes)

    def _keep(self, taken: Taken) -> None:
        """Move what was taken to the trace, or to what is kept."""
        seen = []
        for table, columns in self._recorder.rows(taken):
            for each in self._kept.add(table, columns) if self._kept else ((table, columns),):
                self._write(*each)
            if self._watch:
                seen.append((table, columns))
        self._writer.rotate()
        if self._watch and not self._trigger:
            self._trigger = self._watch.seen(seen)

    def finish(self) -> None:
        """Complete the trace, and say what there is.

        Raises
        ------
        DiskFullError
            There is no room for the rest.
        """
        self._recorder.stop()
        self.drain()
        ended_ns = time.monotonic_ns()
        self._backlog.close()
        for table, columns in self._kept.take() if self._kept else ():
            self._write(table, columns)
        if self._trigger:
            self._writer.metadata.options["trigger"] = self._trigger.text
        self._writer.metadata.missed = missed = self._recorder.missed()
        self._writer.close(ended_ns=ended_ns)
        self.close()
        if self._live:
            sys.stderr.write("\r\x1b[K")
        if self._trigger:
            sys.stderr.write(f"trigger: {self._trigger.text}\n")
        if self._kept and self._kept.cut:
            sys.stderr.write("memory was too short for all of the last seconds (--flight-memory)\n")
        if missed:
            sys.stderr.write(
                f"{missed:,} runs of BPF programs were suppressed by the kernel: as many events are missing\n"
            )
        if lost := self._recorder.captures_lost():
            sys.stderr.write(f"{lost:,} packets could not be captured: a ring was full (--buffer)\n")
        sys.stderr.write(render_end(self._now(), str(self._writer.folder)) + "\n")

    def close(self) -> None:
        """End the thread, and close the capture; again is allowed."""
        with contextlib.suppress(DiskFullError):  # it was raised before
            self._backlog.close()
        if self._capture:
            self._capture.close()

    def _write(self, table: str, columns: dict[str, Array]) -> None:
        if self._capture and table == CAPTURE:
            self._capture.write(Captured(**columns))
            return
        self._writer.append(table, columns)
        if self._capture and table == "devices":
            self._capture.learn(columns)
        if table in EVENT_TABLES or (table.startswith("e_") and "time_ns" in columns):
            self._events += len(columns["time_ns"])

    def _show(self) -> None:
        sys.stderr.write(f"\r\x1b[K{render_progress(self._now())}")
        sys.stderr.flush()
        self._shown_s, self._shown_events = time.monotonic(), self._events

    def _now(self) -> Recording:
        now_s = time.monotonic()
        return Recording(
            elapsed_s=now_s - self._started_s,
            events=self._events,
            lost=self._recorder.lost,
            per_s=(self._events - self._shown_events) / max(now_s - self._shown_s, 1e-9),
            size_bytes=self._writer.bytes_written + (self._capture.bytes_written if self._capture else 0),
        )
