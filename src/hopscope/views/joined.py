# SPDX-License-Identifier: Apache-2.0
"""What was joined, in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.analysis.join import Joined


def render_joined(joined: Joined, folder: Path) -> str:
    """Return the lines: each host's bound, what is missing, and where it is."""
    hosts = zip(joined.hosts, joined.bounds_ns, strict=True)
    lines = []
    for number, (name, (median, worst)) in enumerate(hosts):
        said = "the time axis" if number == 0 else f"within {median:,} ns (median), {worst:,} ns (worst)"
        lines.append(f"{name}: {said}")
    lines += joined.notes
    lines.append(f"{folder}: {joined.rows:,} rows of {len(joined.hosts)} hosts")
    return "\n".join(lines)
