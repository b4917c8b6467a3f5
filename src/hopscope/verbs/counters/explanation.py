# SPDX-License-Identifier: Apache-2.0
"""What a counter counts, as text and as JSON; ``docs/json/hopscope.counters.explain-1.schema.json`` describes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.counters.explanation import SIGNS
from hopscope.model.counters.readings import Key
from hopscope.model.counters.sources import SOURCES, layer_of
from hopscope.term.json_lines import VERSION, Json

if TYPE_CHECKING:
    from hopscope.model.counters.explanation import Explanation
    from hopscope.term.terminal import Terminal

_INDENT = 2


def render_explanation(source: str, name: str, entry: Explanation, terminal: Terminal) -> str:
    """Return what is known of a counter as lines without a line end after the last."""
    others = [other for other in entry.names if other.lower() != name.lower()]
    kin = "names like" if entry.is_family else "also"
    lines = [
        terminal.paint(line, "bold")
        for line in terminal.fold(f"{name}  {_layer(source, name)}  ({SOURCES[source].seen_with})")
    ]
    for text in (
        f"counts: {entry.counts}",
        f"moves: {entry.means}",
        f"sign: {SIGNS[entry.sign]}",
        *([f"{kin}: {', '.join(others)}"] if others else []),
        f"source: {entry.source}",
    ):
        lines += [" " * _INDENT + line for line in _narrow(terminal).fold(text)]
    return "\n".join(lines)


def explanation_to_json(source: str, name: str, entry: Explanation) -> Json:
    """Return what is known of a counter as the object that schema ``hopscope.counters.explain/1`` describes."""
    return {
        "schema": f"hopscope.counters.explain/{VERSION}",
        "name": name,
        "names": list(entry.names),
        "layer": _layer(source, name),
        "seen_with": SOURCES[source].seen_with,
        "counts": entry.counts,
        "means": entry.means,
        "sign": entry.sign,
        "source": entry.source,
    }


def _layer(source: str, name: str) -> str:
    return layer_of(Key(0, source, "", name))


def _narrow(terminal: Terminal) -> Terminal:
    return type(terminal)(terminal.width - _INDENT, terminal.colour, terminal.unicode)
