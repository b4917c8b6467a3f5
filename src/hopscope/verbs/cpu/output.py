# SPDX-License-Identifier: Apache-2.0
"""What ``cpu`` prints and writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TextIO

from hopscope.live.interval import Reports
from hopscope.model.cpu import CpuSnapshot
from hopscope.term.cpu_json import cpu_to_json
from hopscope.term.flamegraph import render_flamegraph
from hopscope.term.folded import render_folded
from hopscope.term.speedscope import render_speedscope
from hopscope.verbs.cpu.table import render_cpu

if TYPE_CHECKING:
    from hopscope.live.interval import Drained


@dataclass(frozen=True, slots=True)
class Files:
    """Open files for the stacks of the whole run."""

    folded: TextIO | None = None
    flame: TextIO | None = None
    speedscope: TextIO | None = None

    def __bool__(self) -> bool:
        """Whether any is wanted."""
        return any((self.folded, self.flame, self.speedscope))

    def write(self, snapshot: CpuSnapshot) -> None:
        """Write those that are wanted."""
        title = f"hopscope cpu: {snapshot.duration_s:.1f} s, {snapshot.hz} Hz"
        if self.folded:
            self.folded.write(render_folded(snapshot.stacks))
        if self.flame:
            self.flame.write(render_flamegraph(title, snapshot.stacks, snapshot.own_programs))
        if self.speedscope:
            self.speedscope.write(render_speedscope(title, snapshot.stacks))
        for file in (self.folded, self.flame, self.speedscope):
            if file:
                file.flush()


@dataclass
class CpuOutput(Reports[CpuSnapshot]):
    """How the results of ``cpu`` are printed, and the files that are written at the end.

    Attributes
    ----------
    collector
        Whose rings are emptied between reports.
    limit
        Maximum rows of the table; None: all.
    breakdown
        Whether categories are shown.
    files
        For the stacks.
    """

    between_s: ClassVar[float | None] = 0.2

    collector: Drained = field(kw_only=True)
    limit: int | None = field(kw_only=True)
    breakdown: bool = field(kw_only=True)
    files: Files = field(kw_only=True)
    _reports: int = field(default=0, init=False)

    def between(self) -> None:
        """Make room for further stacks."""
        self.collector.drain()

    def show(self, snapshot: CpuSnapshot) -> None:
        """Print a snapshot."""
        last = snapshot.kind == "total"
        self._reports += not last
        if self.style == "json":
            self._print_json(cpu_to_json(snapshot))
        elif not last or self._reports != 1:  # the one interval has been the whole
            self._print(render_cpu(snapshot, self._terminal(), limit=self.limit, breakdown=self.breakdown))

    def finish(self, total: CpuSnapshot) -> None:
        """Write the files."""
        self.files.write(total)

    def wants_total(self, reports: int) -> bool:
        """As for any output; the files are of the whole run."""
        return bool(self.files) or super().wants_total(reports)
