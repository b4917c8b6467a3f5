# SPDX-License-Identifier: Apache-2.0
"""What ``sockets`` prints."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopscope.analysis.socket_report import SocketReport
from hopscope.cli.live import Reports
from hopscope.views.json_lines import line
from hopscope.views.socket_details import render_details
from hopscope.views.socket_json import groups_to_json, report_to_json, sockets_to_json
from hopscope.views.sockets import render_groups, render_sockets

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class SocketOutput(Reports[SocketReport]):
    """How sockets are printed: as ``table``, ``details`` or ``json``.

    Attributes
    ----------
    group_by
        What sockets are summed up by; empty: each has a line of its own.
    top
        So many are shown; 0: all.
    """

    group_by: Sequence[str] = field(kw_only=True)
    top: int = field(kw_only=True)

    def show(self, snapshot: SocketReport) -> None:
        """Print a report."""
        if self.style == "json":
            self._write_json(snapshot)
        elif self.group_by:
            self._print(render_groups(snapshot, self.group_by, self._terminal(), self.top))
        elif self.style == "details":
            self._print(render_details(snapshot, self._terminal(), self.top))
        else:
            self._print(render_sockets(snapshot, self._terminal(), self.top))

    def _write_json(self, report: SocketReport) -> None:
        sys.stdout.write(line(report_to_json(report)) + "\n")
        rows = (
            groups_to_json(report, self.group_by, self.top) if self.group_by else sockets_to_json(report.head(self.top))
        )
        for row in rows:
            sys.stdout.write(line(row) + "\n")
        sys.stdout.flush()
