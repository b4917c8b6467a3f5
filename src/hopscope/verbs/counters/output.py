# SPDX-License-Identifier: Apache-2.0
"""What ``counters`` prints."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopscope.live.interval import Reports
from hopscope.model.counters.rows import CounterSnapshot
from hopscope.verbs.counters.table import counters_to_json, render_counters

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class CounterOutput(Reports[CounterSnapshot]):
    """How counters are printed.

    Attributes
    ----------
    moved_by
        The command that runs meanwhile.
    only_total
        People are shown the whole alone: what the command moved.
    """

    moved_by: Sequence[str] = field(kw_only=True)
    only_total: bool = field(kw_only=True)

    def show(self, snapshot: CounterSnapshot) -> None:
        """Print a snapshot."""
        if self.style == "json":
            self._print_json(counters_to_json(snapshot))
        elif snapshot.kind == "total" or not self.only_total:
            self._print(render_counters(snapshot, self._terminal(), shlex.join(self.moved_by)))

    def wants_total(self, reports: int) -> bool:
        """Tell whether the whole is to be shown at the end."""
        return self.only_total or super().wants_total(reports)
