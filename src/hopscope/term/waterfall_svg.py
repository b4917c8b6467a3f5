# SPDX-License-Identifier: Apache-2.0
"""Messages as waterfalls, one below the other: an SVG file. A bar is a stage; its colour is the main cause."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BAR: Final = 14
_POINTS: Final = 96  # what the names of points take
_TIMES: Final = 70
_LEAST_WIDTH: Final = 1.5
_TITLE_COLUMNS: Final = 118
_KEYS_IN_A_LINE: Final = 4
_UNTOLD: Final = 0.35


@dataclass(frozen=True, slots=True)
class Bar:
    """A stage of a message.

    Attributes
    ----------
    point
        Where it ends.
    after_ns, duration_ns
        Its beginning, relative to that of the message, and its duration.
    causes
        What held the message, longest first.
    told
        Whether the duration is known; otherwise it is the most that it can be.
    """

    point: str
    after_ns: int
    duration_ns: int
    causes: tuple[str, ...]
    told: bool = True


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A message: a sentence on it, its whole time, and its stages in order."""

    title: str
    total_ns: int
    bars: Sequence[Bar]


def render_waterfalls(title: str, waterfalls: Sequence[Waterfall]) -> str:
    """Return the picture as an SVG document."""
    causes = list(dict.fromkeys(bar.causes[0] for each in waterfalls for bar in each.bars if bar.causes))
    colours = {cause: number % len(svg.COLOURS) for number, cause in enumerate(causes)}
    parts = [svg.text(svg.LEFT, svg.TITLE_TOP, svg.clean(title), "title")]
    top = svg.TITLE_TOP + svg.LINE
    for number, cause in enumerate(causes):
        row, column = divmod(number, _KEYS_IN_A_LINE)
        x, y = svg.LEFT + column * svg.PLOT_WIDTH / _KEYS_IN_A_LINE, top + row * svg.LINE
        parts.append(f'<rect class="bar c{colours[cause]}" x="{x:g}" y="{y - 10}" width="10" height="10"/>')
        parts.append(svg.text(x + 16, y, svg.clean(cause), "faint"))
    top += (len(causes) + _KEYS_IN_A_LINE - 1) // _KEYS_IN_A_LINE * svg.LINE + svg.LINE
    if not waterfalls:
        parts.append(svg.text(svg.LEFT, top, "No message was selected.", "faint"))
    for each in waterfalls:
        parts += _waterfall(each, colours, top)
        top += (len(_title(each)) + len(each.bars) + 1) * svg.LINE
    rules = ("", *(_rules(palette) for palette in (svg.COLOURS, svg.DARK_COLOURS)))
    return svg.document(title, (svg.WIDTH, top + svg.LINE), (rules[0], rules[1], rules[2]), parts)


def _rules(colours: Sequence[str]) -> str:
    return " ".join(f".bar.c{number} {{ fill: {colour}; }}" for number, colour in enumerate(colours))


def _title(each: Waterfall) -> list[str]:
    return textwrap.wrap(each.title, _TITLE_COLUMNS) or [""]


def _waterfall(each: Waterfall, colours: Mapping[str, int], top: int) -> list[str]:
    lines = _title(each)
    parts = [svg.text(svg.LEFT, top + number * svg.LINE, svg.clean(line)) for number, line in enumerate(lines)]
    left = svg.LEFT + _POINTS + _TIMES
    scale = (svg.LEFT + svg.PLOT_WIDTH - left) / max(each.total_ns, 1)
    for number, bar in enumerate(each.bars, len(lines)):
        y = top + number * svg.LINE
        duration = f"{'' if bar.told else '< '}{fmt.time(bar.duration_ns)}"
        hint = svg.clean(
            f"{bar.point}: {duration}, {fmt.time(bar.after_ns)} after the beginning; {', '.join(bar.causes)}"
        )
        look = f"bar c{colours[bar.causes[0]]}" if bar.causes else "bar"
        x, width = left + bar.after_ns * scale, max(bar.duration_ns * scale, _LEAST_WIDTH)
        parts.append(svg.text(svg.LEFT, y, svg.clean(bar.point), "faint"))
        parts.append(svg.text(left - 10, y, svg.clean(duration), "end figure"))
        parts.append(
            f'<rect class="{look}" x="{x:.2f}" y="{y - 11}" width="{width:.2f}" height="{_BAR}" '
            f'fill-opacity="{1 if bar.told else _UNTOLD:g}"><title>{hint}</title></rect>'
        )
    return parts
