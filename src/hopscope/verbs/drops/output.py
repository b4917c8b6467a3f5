# SPDX-License-Identifier: Apache-2.0
"""What ``drops`` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from hopscope.live.interval import Reports
from hopscope.model.drops import DropSnapshot
from hopscope.term.drops_json import drops_to_json
from hopscope.verbs.drops.table import render_drops

if TYPE_CHECKING:
    from hopscope.live.interval import Drained


@dataclass
class DropOutput(Reports[DropSnapshot]):
    """How drops are printed.

    Attributes
    ----------
    collector
        Whose rings are emptied between reports.
    limit
        Maximum rows; None: all.
    """

    between_s: ClassVar[float | None] = 0.05

    collector: Drained = field(kw_only=True)
    limit: int | None = field(kw_only=True)

    def between(self) -> None:
        """Make room for further records."""
        self.collector.drain()

    def show(self, snapshot: DropSnapshot) -> None:
        """Print a snapshot."""
        if self.style == "json":
            self._print_json(drops_to_json(snapshot))
        else:
            self._print(render_drops(snapshot, self._terminal(), self.limit))
