# SPDX-License-Identifier: Apache-2.0
"""Run a collector for a while and print what it finds, for every verb that reports at intervals."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

from hopscope.live.child import exit_code, running
from hopscope.live.handover import handover
from hopscope.live.stop import Stop, stop_on_signal
from hopscope.term.histogram import render_histograms
from hopscope.term.hosts import host_heading
from hopscope.term.json_lines import line, to_json
from hopscope.term.plan import render_plan
from hopscope.term.table import render_table
from hopscope.term.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.live.contract import Collector
    from hopscope.model.snapshot import PlanRow, Snapshot
    from hopscope.term.json_lines import Json

# The part of an interval in which the kernel measures our programs, and its limit.
_COST_SHARE: Final = 0.05
_COST_WINDOW_S: Final = 0.05

SnapshotT = TypeVar("SnapshotT")


class Drained(Protocol):
    """A collector whose rings are to be emptied several times a second."""

    def drain(self) -> None:
        """Empty them."""


@dataclass
class Reports(Generic[SnapshotT]):
    """How the snapshots of a verb are printed: as ``table``, ``json``, or as else the verb has it."""

    # How often `between` is called; None: never.
    between_s: ClassVar[float | None] = None

    style: str
    show_plan: bool = False
    # Whose results these are, where they are those of several hosts; "*": all of them together.
    host: str = ""

    def between(self) -> None:
        """Print or fetch what cannot wait for the next snapshot."""

    def rest(self) -> None:
        """Print what is left at the end; what takes too long is left out, and counted as lost in the total."""

    def plan(self, rows: Sequence[PlanRow]) -> None:
        """Show how the probe points were attached, if that was asked for. JSON has it in every line."""
        if self.show_plan and self.style != "json":
            self._print(render_plan(rows, self._terminal()))

    def show(self, snapshot: SnapshotT) -> None:
        """Print one snapshot."""
        raise NotImplementedError

    def finish(self, total: SnapshotT) -> None:
        """Show or write what there is once, of the whole run, behind its total."""

    def wants_total(self, reports: int) -> bool:
        """Tell whether the whole is to be shown at the end: programs count on it, people do not need it after one."""
        return self.style == "json" or reports > 1

    def _print(self, text: str, *, headed: bool = True) -> None:
        if self.host and headed:
            text = "\n".join([*host_heading(self.host, self._terminal()), text])
        sys.stdout.write(text + "\n\n")
        sys.stdout.flush()

    def _print_json(self, document: Json) -> None:
        sys.stdout.write(self._json(document) + "\n")
        sys.stdout.flush()

    def _json(self, document: Json) -> str:
        """Return a document as a line, which says whose it is."""
        return line({"schema": document["schema"], "host": self.host, **document} if self.host else document)

    @staticmethod
    def _terminal() -> Terminal:
        return Terminal.of(sys.stdout, os.environ)


class Output(Reports["Snapshot"]):
    """How histograms of hops are printed: ``table``, ``histogram`` or ``json``."""

    def show(self, snapshot: Snapshot) -> None:
        """Print one snapshot."""
        if self.style == "json":
            self._print_json(to_json(snapshot))
        else:
            render = render_histograms if self.style == "histogram" else render_table
            self._print(render(snapshot, self._terminal()))


def run(
    collector: Collector[SnapshotT],
    output: Reports[SnapshotT],
    *,
    interval_s: float,
    duration_s: float | None,
    command: Sequence[str] = (),
) -> int:
    """Report at intervals until the time is over, the command ends, or a signal comes; then report the whole.

    A program that asked for the collector gets it, and nothing is run.

    Returns
    -------
    int
        The exit code: that of the command, as a shell gives it, unless the command was ended because the time was over.

    Raises
    ------
    UsageError
        The command cannot be started.
    """
    if taken := handover():
        taken.collector, taken.between_s = collector, output.between_s
        return 0
    # What reads JSON from us must not find the command's words in it.
    command_output = sys.stderr if output.style == "json" else None
    with stop_on_signal() as stop, collector, running(command, stop, command_output) as child:
        try:
            stopped = _report(collector, output, stop, interval_s, duration_s)
        except OSError:  # nobody can read what is printed; what is written to files does not depend on that
            output.finish(collector.total())
            raise
        time_is_over = not stopped and child is not None and child.poll() is None
    return 0 if child is None or time_is_over else exit_code(child)


def cost_window_s(interval_s: float) -> float:
    """Return for how long at the end of an interval the kernel measures our programs."""
    return min(interval_s * _COST_SHARE, _COST_WINDOW_S)


def _report(
    collector: Collector[SnapshotT],
    output: Reports[SnapshotT],
    stop: Stop,
    interval_s: float,
    duration_s: float | None,
) -> bool:
    """Report until the end; say whether something asked to stop."""
    output.plan(collector.plan())
    reports = 0
    end_s = time.monotonic() + duration_s if duration_s else float("inf")
    tick_s = time.monotonic()
    stopped = False
    while not stopped and tick_s < end_s:
        tick_s = min(tick_s + interval_s, end_s)
        window_s = cost_window_s(interval_s)
        # Asked before the counters are read: a stop that comes later gets a report of its own, or what was seen up to
        # then would be missing.
        stopped = _wait(stop, tick_s - window_s, output)
        collector.measure_cost(window_s)
        output.show(collector.interval())
        reports += 1
    if output.wants_total(reports):
        output.rest()
        total = collector.total()
        output.show(total)
        output.finish(total)
    return stopped


def _wait(stop: Stop, until_s: float, output: Reports[SnapshotT]) -> bool:
    """Wait until that time of CLOCK_MONOTONIC or until something asks to stop; say whether it did."""
    while output.between_s and until_s - time.monotonic() > output.between_s:
        if stop.wait(output.between_s):
            return True
        output.between()
    return stop.wait(max(until_s - time.monotonic(), 0))
