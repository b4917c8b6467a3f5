# SPDX-License-Identifier: Apache-2.0
"""Run a collector for a while and print what it finds, for every verb that reports at intervals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.views.histogram import render_histograms
from hopscope.views.json_lines import line, to_json
from hopscope.views.plan import render_plan
from hopscope.views.table import render_table
from hopscope.views.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.analysis.snapshot import PlanRow, Snapshot
    from hopscope.collectors.contract import Collector

# The part of an interval in which the kernel measures our programs, and its limit.
_COST_SHARE: Final = 0.05
_COST_WINDOW_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Output:
    """How snapshots are printed: ``table``, ``histogram`` or ``json``."""

    style: str
    show_plan: bool = False

    def plan(self, rows: Sequence[PlanRow]) -> None:
        """Show how the probe points were attached, if that was asked for. JSON has it in every line."""
        if self.show_plan and self.style != "json":
            self._print(render_plan(rows, _terminal()))

    def show(self, snapshot: Snapshot) -> None:
        """Print one snapshot."""
        if self.style == "json":
            sys.stdout.write(line(to_json(snapshot)) + "\n")
            sys.stdout.flush()
        else:
            render = render_histograms if self.style == "histogram" else render_table
            self._print(render(snapshot, _terminal()))

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text + "\n\n")
        sys.stdout.flush()


def run(
    collector: Collector,
    output: Output,
    *,
    interval_s: float,
    duration_s: float | None,
    command: Sequence[str] = (),
) -> int:
    """Report at intervals until the time is over, the command ends, or a signal comes; then report the whole.

    Returns
    -------
    int
        The exit code: the command's, if there is one.

    Raises
    ------
    UsageError
        The command cannot be started.
    """
    with _stop_on_signal() as stop, collector, _running(command, stop) as child:
        output.plan(collector.plan())
        reports = 0
        end_s = time.monotonic() + duration_s if duration_s else float("inf")
        tick_s = time.monotonic()
        while not stop.is_set() and tick_s < end_s:
            tick_s = min(tick_s + interval_s, end_s)
            window_s = min(interval_s * _COST_SHARE, _COST_WINDOW_S)
            stop.wait(max(tick_s - window_s - time.monotonic(), 0))
            collector.measure_cost(window_s)
            output.show(collector.interval())
            reports += 1
        if reports > 1:
            output.show(collector.total())
    return child.returncode if child else 0


def _terminal() -> Terminal:
    return Terminal.of(sys.stdout, os.environ)


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; the handlers before are put back."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _running(command: Sequence[str], stop: threading.Event) -> Iterator[subprocess.Popen[bytes] | None]:
    """Start the command, set `stop` when it ends, and end it when we do."""
    if not command:
        yield None
        return
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started: {error.strerror}", "Give a program and its arguments"
        ) from error

    def wait_and_stop() -> None:
        child.wait()
        stop.set()

    threading.Thread(target=wait_and_stop, daemon=True).start()
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait()
