# SPDX-License-Identifier: Apache-2.0
"""What was joined, in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.term.format import plural

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.trace.join.traces import Joined


def render_joined(joined: Joined, folder: Path) -> str:
    """Return the lines: each host's bound, what is missing, and where it is."""
    hosts = zip(joined.hosts, joined.bounds_ns, strict=True)
    lines = []
    for number, (name, (median, worst)) in enumerate(hosts):
        said = "the time axis" if number == 0 else f"error bound {median:,} ns (median), {worst:,} ns (maximum)"
        lines.append(f"{name}: {said}")
    lines += joined.notes
    lines.append(f"{folder}: {plural(joined.rows, 'row')} of {plural(len(joined.hosts), 'host')}")
    return "\n".join(lines)
