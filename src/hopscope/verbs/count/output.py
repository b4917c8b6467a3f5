# SPDX-License-Identifier: Apache-2.0
"""What ``count`` prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopscope.live.interval import Reports
from hopscope.verbs.count.json import count_to_json
from hopscope.verbs.count.snapshot import CountSnapshot
from hopscope.verbs.count.table import render_counts


@dataclass
class CountOutput(Reports[CountSnapshot]):
    """How counts are printed.

    Attributes
    ----------
    limit
        Maximum rows; None: all.
    """

    limit: int | None = field(kw_only=True)

    def show(self, snapshot: CountSnapshot) -> None:
        """Print a snapshot."""
        if self.style == "json":
            self._print_json(count_to_json(snapshot))
        else:
            self._print(render_counts(snapshot, self._terminal(), self.limit))
