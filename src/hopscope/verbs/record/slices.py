# SPDX-License-Identifier: Apache-2.0
"""Record as much as a budget allows: one recording after the other, and nothing in between.

Each recording is complete in itself and knows nothing of the ones before, so that what is said of it is true whatever
happened in the gaps. They go into a fleet's directory, where they are added up (``hopscope fleet report``).

There is an account of CPU time (:class:`~hopscope.live.budget.Account`). A recording ends when the account is empty,
and the next one begins when enough has been saved up; how much that is is left to chance, so that no pattern in the
traffic can hide. Where recording costs less than the budget, a recording lasts for minutes, and the next one follows at
once.
"""

from __future__ import annotations

import contextlib
import platform
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopscope.clock.domain import boot_id
from hopscope.gate import tell
from hopscope.live.budget import Account
from hopscope.live.child import exit_code, running
from hopscope.live.stop import stop_on_signal
from hopscope.model.snapshot import Overhead
from hopscope.progress import doing, progress
from hopscope.store.destination import Folder
from hopscope.store.fleet.raw import HOUR_NS, hour_of
from hopscope.store.folder import folder_mode, open_folder
from hopscope.store.meta import Metadata
from hopscope.term.footer import cost
from hopscope.term.format import plural
from hopscope.term.recording import size
from hopscope.verbs.record.pipeline import Limits, Pipeline, prior
from hopscope.verbs.record.run import tell_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hopscope.live.recorder.collector import Recorder
    from hopscope.live.stop import Stop
    from hopscope.store.fleet.raw import Raw
    from hopscope.term.recording import Recording

# For how long is saved up at most: so much is in the account when a recording begins, or by a third less, by chance.
_SPAN_S: Final = 60.0
_JITTER: Final = 1 / 3
# The shortest and the longest recording: what is being recorded is lost if the recorder is killed.
_LEAST_S: Final = 0.5
_MOST_S: Final = 300.0
# Of what is saved up, at most so much goes into beginning and ending a recording; until that was measured, it takes:
_FIRST_SWITCH_S: Final = 0.05
_SWITCHES: Final = 2.5
_LOOK_S: Final = 1.0
_BACKLOG_BYTES: Final = 256 << 20
# Counters are read when a recording begins and ends, and not meanwhile.
_COUNTERS_S: Final = 86_400.0


@dataclass(slots=True)
class _Done:
    """What was recorded so far."""

    recordings: int = 0
    recorded_s: float = 0.0
    events: int = 0
    lost: int = 0
    size_bytes: int = 0
    bpf_s: float = 0.0
    remarks: list[str] = field(default_factory=list)

    def add(self, over: Recording, metadata: Metadata, remarks: Sequence[str]) -> None:
        length_s = ((metadata.ended_ns or 0) - metadata.started_ns) / 1e9
        self.recordings += 1
        self.recorded_s += length_s
        self.events += over.events
        self.lost += over.lost
        self.size_bytes += over.size_bytes
        if over.cost:
            self.bpf_s += (over.cost["bpf_cpu_percent"] or 0.0) / 100 * length_s
        self.remarks = [*remarks]

    def lines(self, elapsed_s: float, process_s: float, fleet: Path) -> list[str]:
        """Return what is said at the end."""
        taken = Overhead(0, None, self.bpf_s / elapsed_s * 100, process_s / elapsed_s * 100, 0)
        lost = f"{self.lost:,} lost" if self.lost else "none lost"
        return [
            cost(taken),
            (
                f"{plural(self.events, 'event')} in {plural(self.recordings, 'recording')}, {self.recorded_s:.1f} s of"
                f" {elapsed_s:.1f} s; {lost}; {size(self.size_bytes)}"
            ),
            f"hopscope fleet report hops {fleet}",
        ]


class _Slices:
    """Makes recordings until it is time to end.

    Parameters
    ----------
    recorder
        Entered.
    raw
        Where they go.
    account
        Of what is allowed.
    stop
        Says when to end.
    limits
        Of all recordings together.
    mode, with_counters
        Who may read them, and whether counters are read.
    """

    def __init__(  # noqa: PLR0913 # one parameter a part
        self,
        recorder: Recorder,
        raw: Raw,
        account: Account,
        stop: Stop,
        limits: Limits,
        *,
        mode: int,
        with_counters: bool,
    ) -> None:
        self._recorder, self._raw, self._account, self._stop = recorder, raw, account, stop
        self._mode, self._counters_s = mode, _COUNTERS_S if with_counters else None
        self._most_bytes = limits.size_bytes or float("inf")
        self._end_s = time.monotonic() + limits.duration_s if limits.duration_s else float("inf")
        self._switch_s = _FIRST_SWITCH_S
        self.done = _Done()

    def run(self) -> bool:
        """Record until it is time; say whether something asked to stop, rather than a limit.

        Raises
        ------
        HopscopeError
            Something of it cannot be written, or attached again.
        """
        while True:
            doing("recording")
            self._record()
            begun_s = time.process_time()
            self._recorder.pause()
            self._account.set_rate(self, None)
            self._switch_s += time.process_time() - begun_s
            if self._is_over(0) or (self._account.saved_s() < self._switch_s and self._rest()):
                return self._stop.wait(0)
            begun_s = time.process_time()
            self._recorder.resume()
            self._switch_s += time.process_time() - begun_s

    def _record(self) -> None:
        realtime_ns = time.time_ns()
        most_s = min(_MOST_S, (HOUR_NS - realtime_ns % HOUR_NS) / 1e9, max(self._end_s - time.monotonic(), 0))
        self._raw.add(platform.node(), boot_id(), hour_of(realtime_ns), lambda folder: self._write(folder, most_s))

    def _write(self, folder: Path, most_s: float) -> None:
        began_s = time.monotonic()
        folder.chmod(folder_mode(self._mode))

        def wait(seconds: float) -> bool:
            self._account.set_rate(self, self._recorder.cost_rate)
            is_empty = self._account.saved_s() <= self._switch_s / 2 and time.monotonic() - began_s >= _LEAST_S
            return is_empty or self._stop.wait(seconds)

        with (
            prior(),
            contextlib.closing(open_folder(folder, self._mode)) as opened,
            Pipeline(
                self._recorder,
                Folder(opened),
                flight=None,
                counters_s=self._counters_s,
                backlog_bytes=_BACKLOG_BYTES,
            ) as pipeline,
        ):
            pipeline.run(wait, Limits(most_s), lambda: None)
            begun_s = time.process_time()
            over = pipeline.finish()
        self._switch_s = time.process_time() - begun_s
        self.done.add(over, Metadata.read(folder), pipeline.remarks())

    def _rest(self) -> bool:
        """Wait until enough is saved up; say whether it is time to end."""
        doing("waiting until the budget allows more")
        account = self._account
        account.most_s = max(account.allowed * _SPAN_S, self._switch_s * _SWITCHES)
        wanted_s = account.most_s * (1 - random.random() * _JITTER)  # noqa: S311 # no secret
        while (missing_s := wanted_s - account.saved_s()) > 0:
            if self._is_over(min(missing_s / account.allowed, _LOOK_S)):
                return True
        return False

    def _is_over(self, wait_s: float) -> bool:
        left_s = self._end_s - time.monotonic()
        return (
            self._stop.wait(max(min(wait_s, left_s), 0))
            or time.monotonic() >= self._end_s
            or self.done.size_bytes >= self._most_bytes
        )


def record_slices(  # noqa: PLR0913 # one parameter a part
    recorder: Recorder,
    raw: Raw,
    percent: float,
    limits: Limits,
    *,
    mode: int,
    with_counters: bool,
    command: Sequence[str],
) -> int:
    """Record what a budget allows, until the command ends, a limit is reached or a signal comes.

    Parameters
    ----------
    recorder
        Not entered.
    raw
        Where recordings go.
    percent
        Of one CPU, which the programs and this process may take on average over some minutes.
    limits
        Of all recordings together.
    mode
        Who may read them.
    with_counters
        Whether the kernel's counters are read, at the beginning and the end of each.
    command
        What runs meanwhile; empty: nothing.

    Returns
    -------
    int
        The exit code: that of the command, unless it was ended before its time.

    Raises
    ------
    KernelError
        This kernel does not attach programs a second time.
    DiskFullError
        There is no room for more; earlier recordings can be read.
    """
    with stop_on_signal() as stop, contextlib.ExitStack() as stack:
        entered = stack.enter_context(recorder)
        entered.require_resumable()
        tell_of(entered)
        account = Account(percent / 100)
        account.begin(_SPAN_S * _JITTER)
        began_s, process_s = time.monotonic(), time.process_time()
        slices = _Slices(entered, raw, account, stop, limits, mode=mode, with_counters=with_counters)
        with running(command, stop, None) as child, progress():
            ended = slices.run()
        elapsed_s, process_s = time.monotonic() - began_s, time.process_time() - process_s
    for remark in slices.done.remarks:
        tell(remark)
    sys.stderr.write("\n".join(slices.done.lines(elapsed_s, process_s, raw.fleet)) + "\n")
    return 0 if child is None or not ended else exit_code(child)
