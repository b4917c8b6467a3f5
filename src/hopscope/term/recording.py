# SPDX-License-Identifier: Apache-2.0
"""How a recording goes on: one line, and one at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.model.snapshot import Overhead
from hopscope.term import format as fmt
from hopscope.term.footer import cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.meta import Cost

_KIBI = 1024.0
_COLUMNS = 79
_NEXT = "hopscope report summary"
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
    size_bytes
        Of complete files.
    cost
        What recording took; None: not known.
    """

    elapsed_s: float
    events: int
    lost: int
    size_bytes: int
    cost: Cost | None = None


def render_progress(recording: Recording, before: Recording) -> str:
    """Return a line of at most 79 columns; how fast it goes is since `before`."""
    per_s = (recording.events - before.events) / max(recording.elapsed_s - before.elapsed_s, 1e-9)
    return (
        f"{recording.elapsed_s:8.1f} s  {fmt.plural(recording.events, 'event')}  {fmt.rate(per_s)}/s  "
        f"{fmt.count(recording.lost)} lost  {size(recording.size_bytes)}"
    )[:_COLUMNS]


def render_end(recording: Recording, folder: str) -> str:
    """Return what is said at the end: what there is, what is missing, and what to do with it."""
    return "\n".join([*cost_lines(recording.cost), _summary(recording), f"{_NEXT} {folder}"])


def cost_lines(taken: Cost | None) -> list[str]:
    """Return what recording took, as a line; none where it is not known."""
    return [cost(Overhead(hits=0, missed=0, **taken))] if taken else []


def render_hosts(
    names: Sequence[str], now: Sequence[Recording], before: Sequence[Recording], states: Sequence[str]
) -> list[str]:
    """Return a line of at most 79 columns for each host; where there is a state, it is instead of how far it is."""
    width = max(map(len, names))
    rows = zip(names, now, before, states, strict=True)
    return [
        f"{name:{width}}  {state or render_progress(recording, past)}"[:_COLUMNS]
        for name, recording, past, state in rows
    ]


def render_hosts_end(hosts: Sequence[tuple[str, Recording, float]], folder: str) -> str:
    """Return what is said at the end of a recording of several hosts, a line each, with its agent's CPU time."""
    width = max(len(name) for name, *_ in hosts)
    lines = [f"{name:{width}}  {_summary(recording)}; {cpu_s:.1f} s CPU" for name, recording, cpu_s in hosts]
    return "\n".join([*lines, f"{_NEXT} {folder}"])


def _summary(recording: Recording) -> str:
    each = f", {recording.size_bytes / recording.events:.1f} bytes per event" if recording.events else ""
    lost = f"{recording.lost:,} lost" if recording.lost else "none lost"
    events = fmt.plural(recording.events, "event")
    return f"{events} in {recording.elapsed_s:.1f} s, {lost}; {size(recording.size_bytes)}{each}"


def size(count: int) -> str:
    """Return a number of bytes with 3 significant digits and a binary unit: ``3.21 MiB``."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < _KIBI:
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
        value /= _KIBI
    return f"{value:.3g} {_UNITS[-1]}"
