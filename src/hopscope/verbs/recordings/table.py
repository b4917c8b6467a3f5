# SPDX-License-Identifier: Apache-2.0
"""Recordings as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term.grid import Column, render_grid
from hopscope.term.recording import size
from hopscope.verbs.recordings.listing import options_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hopscope.term.terminal import Terminal
    from hopscope.verbs.recordings.listing import Listed

_MOST_OPTIONS: Final = 40
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def render_recordings(by_directory: Mapping[Path, Sequence[Listed]], terminal: Terminal) -> str:
    """Return the table, with a line below it for each directory: how many there are, and how large they are."""
    listed = [each for found in by_directory.values() for each in found]
    lines = render_grid(_columns(listed, terminal), terminal) if listed else []
    for each in listed:
        if each.recording.problem:
            lines += [terminal.paint(line, "warn") for line in terminal.fold(each.recording.problem)]
    return "\n".join([*lines, *(f"{amount(found)} in {directory}" for directory, found in by_directory.items())])


def amount(listed: Sequence[Listed]) -> str:
    """Return how many and how large: ``2 recordings, 3.21 MiB``."""
    return f"{fmt.plural(len(listed), 'recording')}, {size(sum(each.size_bytes for each in listed))}"


def duration(duration_ns: int | None, *, unicode: bool = True) -> str:
    """Return a duration: below a minute with 3 digits, else in its two largest units, as ``2h05m``."""
    if duration_ns is None or duration_ns < 60 * 10**9:
        return fmt.time(duration_ns, unicode=unicode)
    seconds = round(duration_ns / 1e9)
    large = next(index for index, (_, length) in enumerate(_UNITS) if seconds >= length)
    (unit, length), (small, small_length) = _UNITS[large : large + 2]
    return f"{seconds // length}{unit}{seconds % length // small_length:02}{small}"


def _columns(listed: Sequence[Listed], terminal: Terminal) -> list[Column]:
    recordings = [each.recording for each in listed]
    return [
        Column("name", [each.name for each in recordings], left=True),
        Column("began (UTC)", [_began(each.started_ns) for each in recordings], rank=1, left=True),
        Column("duration", [duration(each.duration_ns, unicode=terminal.unicode) for each in listed]),
        Column("size", [size(each.size_bytes) for each in listed]),
        Column("events", [_count(each.events) for each in listed]),
        Column("lost", [_count(each.lost) for each in listed]),
        Column("state", [each.state for each in recordings], left=True),
        Column("options", [terminal.cut(options_text(each), _MOST_OPTIONS) for each in recordings], left=True),
    ]


def _began(started_ns: int | None) -> str:
    if started_ns is None:
        return fmt.MISSING
    return f"{datetime.fromtimestamp(started_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def _count(count: int | None) -> str:
    return fmt.MISSING if count is None else fmt.count(count)
