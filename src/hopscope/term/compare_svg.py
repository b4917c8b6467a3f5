# SPDX-License-Identifier: Apache-2.0
"""Two recordings hop by hop: an SVG file. A row is a hop, with the median and the 99th percentile before and after."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES: Final = 250
_VERDICTS: Final = 100
_ROW: Final = 26
_COLUMNS: Final = 34
_RADIUS: Final = 4.5
_RULES: Final = ".grid, .axis { fill: none; } .way { stroke-width: 3; } .p99 { stroke-dasharray: 3 3; }"
_WORSE, _BETTER, _SAME = 1, 2, 5  # places of their colours


@dataclass(frozen=True, slots=True)
class Change:
    """A hop.

    Attributes
    ----------
    hop, verdict
        As the report says them.
    p50_ns, p99_ns
        Before and after.
    """

    hop: str
    verdict: str
    p50_ns: tuple[float, float]
    p99_ns: tuple[float, float]


def render_changes(title: str, changes: Sequence[Change]) -> str:
    """Return the picture as an SVG document."""
    top = svg.TITLE_TOP + svg.LINE
    parts = [
        svg.text(svg.LEFT, svg.TITLE_TOP, svg.clean(title), "title"),
        svg.text(svg.LEFT, top, "○ before, ● after; solid: median, dashed: 99th percentile", "faint"),
    ]
    top += svg.LINE
    values = [value for each in changes for value in (*each.p50_ns, *each.p99_ns) if value > 0]
    if not values:
        parts.append(svg.text(svg.LEFT, top + svg.LINE, "The recordings have no hop in common.", "faint"))
        return svg.document(title, (svg.WIDTH, top + 2 * svg.LINE), _rules(), parts)
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right = svg.LEFT + _NAMES, svg.LEFT + svg.PLOT_WIDTH - _VERDICTS
    bottom = top + len(changes) * _ROW

    def x(ns: float) -> float:
        return left + (math.log10(max(ns, 10**first)) - first) / max(last - first, 1) * (right - left)

    for decade in range(first, last + 1):
        parts.append(f'<path class="grid" d="M{x(10**decade):.1f} {top}V{bottom}"/>')
        label = fmt.time(10**decade, digits=1, gap=" ")
        parts.append(svg.text(x(10**decade), bottom + 18, label, "middle faint figure"))
    for number, each in enumerate(changes):
        y = top + number * _ROW + _ROW // 2
        look = f"c{_colour(each)}"
        name = each.hop if len(each.hop) <= _COLUMNS else f"{each.hop[: _COLUMNS - 1]}…"
        said = svg.clean(f"{each.hop}: {each.verdict}; median {_way(each.p50_ns)}, 99th percentile {_way(each.p99_ns)}")
        parts.append(f"<g><title>{said}</title>")
        parts.append(svg.text(svg.LEFT, y + 4, svg.clean(name)))
        parts += _pair(look, "p99", y + 5, x(each.p99_ns[0]), x(each.p99_ns[1]))
        parts += _pair(look, "p50", y - 4, x(each.p50_ns[0]), x(each.p50_ns[1]))
        parts.append(svg.text(right + 12, y + 4, svg.clean(each.verdict), "faint"))
        parts.append("</g>")
    return svg.document(title, (svg.WIDTH, bottom + 2 * svg.LINE), _rules(), parts)


def _rules() -> tuple[str, str, str]:
    light, dark = (
        " ".join(
            f".way.c{number} {{ stroke: {colours[number]}; }} .end-{number} {{ fill: {colours[number]}; }} "
            f".begin-{number} {{ fill: none; stroke: {colours[number]}; stroke-width: 1.5; }}"
            for number in (_WORSE, _BETTER, _SAME)
        )
        for colours in (svg.COLOURS, svg.DARK_COLOURS)
    )
    return _RULES, light, dark


def _colour(change: Change) -> int:
    if change.verdict in {"slower", "longer tail"}:
        return _WORSE
    return _BETTER if change.verdict in {"faster", "shorter tail"} else _SAME


def _way(both_ns: tuple[float, float]) -> str:
    return " → ".join(fmt.time(each) for each in both_ns)


def _pair(look: str, kind: str, y: int, before: float, after: float) -> list[str]:
    number = look.removeprefix("c")
    return [
        f'<path class="way {look} {kind}" d="M{before:.1f} {y}H{after:.1f}"/>',
        f'<circle class="begin-{number}" cx="{before:.1f}" cy="{y}" r="{_RADIUS}"/>',
        f'<circle class="end-{number}" cx="{after:.1f}" cy="{y}" r="{_RADIUS - 1}"/>',
    ]
