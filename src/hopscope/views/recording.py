# SPDX-License-Identifier: Apache-2.0
"""How a recording goes on: one line, and one at its end."""

from __future__ import annotations

from dataclasses import dataclass

from hopscope.views import format as fmt

_KIBI = 1024.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Recording:
    """How far a recording is.

    Attributes
    ----------
    elapsed_s
        Since its start.
    events, lost
        Rows of events, and events that are missing.
    per_s
        Events a second, of late.
    size_bytes
        Of complete files.
    """

    elapsed_s: float
    events: int
    lost: int
    per_s: float
    size_bytes: int


def render_progress(recording: Recording) -> str:
    """Return a line of at most 79 columns."""
    return (
        f"{recording.elapsed_s:8.1f} s  {recording.events:,} events  {fmt.rate(recording.per_s)}/s  "
        f"{fmt.count(recording.lost)} lost  {size(recording.size_bytes)}"
    )[:79]


def render_end(recording: Recording, folder: str) -> str:
    """Return what is said at the end: what there is, what is missing, and what to do with it."""
    each = f", {recording.size_bytes / recording.events:.1f} bytes an event" if recording.events else ""
    lost = f"{recording.lost:,} lost" if recording.lost else "none lost"
    return (
        f"{recording.events:,} events in {recording.elapsed_s:.1f} s, {lost}; {size(recording.size_bytes)}{each}\n"
        f"hopscope report summary {folder}"
    )


def size(count: int) -> str:
    """Return a number of bytes with 3 significant digits and a binary unit: ``3.21 MiB``."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < _KIBI:
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
        value /= _KIBI
    return f"{value:.3g} {_UNITS[-1]}"
