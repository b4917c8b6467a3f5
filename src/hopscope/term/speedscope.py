# SPDX-License-Identifier: Apache-2.0
"""Stacks as a file for https://www.speedscope.app: a sampled profile for each part, or part and group."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from hopscope import __version__
from hopscope.model.stacks import merge
from hopscope.term.json_lines import line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.stacks import Stack

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def render_speedscope(title: str, stacks: Iterable[Stack]) -> str:
    """Return the file's text, one line of JSON; a stack's weight is its number of samples."""
    frames: dict[str, int] = {}
    profiles: list[dict[str, Any]] = []
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
