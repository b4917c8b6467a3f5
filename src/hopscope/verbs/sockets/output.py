# SPDX-License-Identifier: Apache-2.0
"""What ``sockets`` prints."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopscope.live.interval import Reports
from hopscope.term.json_lines import line
from hopscope.verbs.sockets.details import render_details
from hopscope.verbs.sockets.json import groups_to_json, report_to_json, sockets_to_json
from hopscope.verbs.sockets.report import SocketReport
from hopscope.verbs.sockets.table import render_groups, render_sockets

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class SocketOutput(Reports[SocketReport]):
    """How sockets are printed: as ``table``, ``details`` or ``json``.

    Attributes
    ----------
    group_by
        What sockets are summed up by; empty: each has a line of its own.
    limit
        So many are shown; 0: all.
    """

    group_by: Sequence[str] = field(kw_only=True)
    limit: int | None = field(kw_only=True)

    def show(self, snapshot: SocketReport) -> None:
        """Print a report."""
        if self.style == "json":
            self._write_json(snapshot)
        elif self.group_by:
            self._print(render_groups(snapshot, self.group_by, self._terminal(), self.limit))
        elif self.style == "details":
            self._print(render_details(snapshot, self._terminal(), self.limit))
        else:
            self._print(render_sockets(snapshot, self._terminal(), self.limit))

    def _write_json(self, report: SocketReport) -> None:
        sys.stdout.write(line(report_to_json(report)) + "\n")
        rows = (
            groups_to_json(report, self.group_by, self.limit)
            if self.group_by
            else sockets_to_json(report.head(self.limit))
        )
        for row in rows:
            sys.stdout.write(line(row) + "\n")
        sys.stdout.flush()
