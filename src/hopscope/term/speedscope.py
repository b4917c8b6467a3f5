# SPDX-License-Identifier: Apache-2.0
"""Files for https://www.speedscope.app: stacks as a sampled profile for each part, or part and group; and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from hopscope import __version__
from hopscope.model.stacks import merge
from hopscope.term.json_lines import line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hopscope.model.stacks import Stack

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True, slots=True)
class Evented:
    """What happened on one track, in order of time: intervals that are nested in each other.

    Attributes
    ----------
    name
        Of the track.
    frames
        The names.
    opens
        Whether each event is the begin of an interval, or its end.
    places
        Place of its name in `frames`.
    at_ns
        When.
    """

    name: str
    frames: Sequence[str]
    opens: Sequence[bool]
    places: Sequence[int]
    at_ns: Sequence[int]


def render_speedscope(title: str, stacks: Iterable[Stack], evented: Iterable[Evented] = ()) -> str:
    """Return the file's text, one line of JSON; a stack's weight is its number of samples."""
    frames: dict[str, int] = {}
    profiles: list[dict[str, Any]] = [_profile(each, frames) for each in evented]
    seen = [stack for stack in merge(stacks) if stack.samples]
    for (part, group), members in groupby(seen, key=lambda stack: (stack.part, stack.group)):
        rows = [(stack.frames, stack.samples) for stack in members]
        weights = [samples for _, samples in rows]
        profiles.append(
            {
                "type": "sampled",
                "name": f"{part} {group}".rstrip(),
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [[frames.setdefault(name, len(frames)) for name in names] for names, _ in rows],
                "weights": weights,
            }
        )
    file = {
        "$schema": SCHEMA,
        "exporter": f"hopscope@{__version__}",
        "name": title,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    return line(file) + "\n"


def _profile(each: Evented, frames: dict[str, int]) -> dict[str, Any]:
    numbers = [frames.setdefault(name, len(frames)) for name in each.frames]
    return {
        "type": "evented",
        "name": each.name,
        "unit": "nanoseconds",
        "startValue": each.at_ns[0],
        "endValue": each.at_ns[-1],
        "events": [
            {"type": "O" if opens else "C", "frame": numbers[place], "at": at_ns}
            for opens, place, at_ns in zip(each.opens, each.places, each.at_ns, strict=True)
        ],
    }
