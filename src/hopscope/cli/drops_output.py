# SPDX-License-Identifier: Apache-2.0
"""What ``drops`` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from hopscope.analysis.drops import DropSnapshot
from hopscope.cli.live import Reports
from hopscope.views.drops import render_drops
from hopscope.views.drops_json import drops_to_json

if TYPE_CHECKING:
    from hopscope.cli.live import Drained


@dataclass
class DropOutput(Reports[DropSnapshot]):
    """How drops are printed.

    Attributes
    ----------
    collector
        Whose rings are emptied between reports.
    top
        So many lines are shown.
    """

    between_s: ClassVar[float | None] = 0.05

    collector: Drained = field(kw_only=True)
    top: int = field(kw_only=True)

    def between(self) -> None:
        """Make room for further records."""
        self.collector.drain()

    def show(self, snapshot: DropSnapshot) -> None:
        """Print a snapshot."""
        if self.style == "json":
            self._print_json(drops_to_json(snapshot))
        else:
            self._print(render_drops(snapshot, self._terminal(), self.top))
