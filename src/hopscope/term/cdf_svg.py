# SPDX-License-Identifier: Apache-2.0
"""Cumulative distributions as a picture: one SVG file that needs nothing else.

Light or dark as the reader's system is. Besides its colour, each curve has a dash pattern and a letter of its own.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from hopscope.model.cdf import PERCENTILES, points
from hopscope.term import format as fmt
from hopscope.term import svg
from hopscope.term.cdf import LETTERS, legend, ratio, verdicts
from hopscope.term.time_axis import TimeAxis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.cdf import Curve

_PLOT_HEIGHT: Final = 340
_MOST_MARKS: Final = 14
# Of text at 13 px, so that sentences are folded and names are cut inside the picture.
_COLUMNS: Final = 124
_NAME_COLUMNS: Final = 104
_CELL: Final = 104
_FIRST_CELL: Final = svg.LEFT + 8
_DASHES: Final = ("none", "7 4", "2 3", "10 4 2 4", "14 5", "1 5")

_STYLE: Final = """\
.grid, .axis, .curve { fill: none; }
.curve { stroke-width: 2.25; stroke-linejoin: round; }
.letter { font-weight: 700; } .on { paint-order: stroke; stroke-width: 4; }"""


def render_svg(title: str, curves: Sequence[Curve]) -> str:
    """Return the picture as an SVG document: plot, legend, percentiles, and how far apart they are.

    Parameters
    ----------
    title
        Stands above it.
    curves
        As for :func:`~hopscope.term.cdf.render_cdf`.
    """
    found = [(number, curve) for number, curve in enumerate(curves[: len(LETTERS)])]
    drawn = [(number, curve) for number, curve in found if curve.histogram.count]
    parts = [svg.text(svg.LEFT, svg.TITLE_TOP, svg.clean(title), "title")]
    top = svg.TITLE_TOP + svg.LINE
    for number, curve in found:
        parts += _legend(number, curve, top)
        top += svg.LINE
    if drawn:
        parts += _plot(drawn, top + 4)
        top += _PLOT_HEIGHT + 84
        parts += _table(drawn, top)
        top += (2 * len(drawn) + 1) * svg.LINE
    for sentence in verdicts([(LETTERS[number], curve) for number, curve in drawn]):
        for line in textwrap.wrap(sentence, _COLUMNS):
            parts.append(svg.text(svg.LEFT, top, svg.clean(line), "faint"))
            top += svg.LINE
    return svg.document(title, (svg.WIDTH, top + 4), _rules(), parts)


def _rules() -> tuple[str, str, str]:
    dashes = " ".join(f".curve.c{number} {{ stroke-dasharray: {dash}; }}" for number, dash in enumerate(_DASHES))
    light, dark = (
        f".on {{ stroke: {palette.paper}; }} "
        + " ".join(
            f".curve.c{number} {{ stroke: {colour}; }} .letter.c{number} {{ fill: {colour}; }}"
            for number, colour in enumerate(curves)
        )
        for palette, curves in ((svg.LIGHT, svg.COLOURS), (svg.DARK, svg.DARK_COLOURS))
    )
    return f"{_STYLE}\n{dashes}", light, dark


def _legend(number: int, curve: Curve, top: int) -> list[str]:
    said = legend(curve)
    cut = said if len(said) <= _NAME_COLUMNS else "…" + said[1 - _NAME_COLUMNS :]
    return [
        f'<path class="curve c{number}" d="M{svg.LEFT} {top - 4}h36"/>',
        svg.text(svg.LEFT + 46, top, LETTERS[number], f"letter c{number}"),
        svg.text(svg.LEFT + 64, top, svg.clean(cut)),
    ]


def _plot(curves: Sequence[tuple[int, Curve]], top: int) -> list[str]:
    axis = TimeAxis.of([curve.histogram for _, curve in curves])
    bottom = top + _PLOT_HEIGHT
    parts = []
    for percent in range(0, 101, 10):
        y = bottom - percent * _PLOT_HEIGHT / 100
        parts.append(f'<path class="grid" d="M{svg.LEFT} {y:g}h{svg.PLOT_WIDTH}"/>')
        if percent % 20 == 0:
            parts.append(svg.text(svg.LEFT - 10, y + 4, f"{percent}%", "end faint figure"))
    for ns in axis.marks_ns(_MOST_MARKS):
        x = svg.LEFT + axis.place(ns) * svg.PLOT_WIDTH
        parts.append(f'<path class="grid" d="M{x:.1f} {top}v{_PLOT_HEIGHT}"/>')
        parts.append(svg.text(x, bottom + 20, fmt.time(ns, digits=1, gap=" "), "middle faint figure"))
    parts.append(f'<path class="axis" d="M{svg.LEFT} {top}v{_PLOT_HEIGHT}h{svg.PLOT_WIDTH}"/>')
    parts.append(svg.text(svg.LEFT + svg.PLOT_WIDTH / 2, bottom + 42, "duration (logarithmic)", "middle faint"))
    parts += [_curve(number, curve, axis, bottom) for number, curve in curves]
    for place, (number, curve) in enumerate(curves, 1):
        parts.append(_letter(number, curve, axis, bottom, 100 * place / (len(curves) + 1)))
    return parts


def _curve(number: int, curve: Curve, axis: TimeAxis, bottom: int) -> str:
    x_ns, part = points(curve.histogram)
    places = [
        f"{svg.LEFT + place * svg.PLOT_WIDTH:.1f} {bottom - each * _PLOT_HEIGHT:.1f}"
        for place, each in zip(axis.places(x_ns), part.tolist(), strict=True)
    ]
    return f'<path class="curve c{number}" d="M{" L".join(places)}"/>'


def _letter(number: int, curve: Curve, axis: TimeAxis, bottom: int, percent: float) -> str:
    """Return the letter on the curve, at a height of its own, so that two on one line do not hide each other."""
    ns = curve.histogram.percentile(percent) or 0.0
    x = svg.LEFT + axis.place(ns) * svg.PLOT_WIDTH
    return svg.text(x, bottom - percent * _PLOT_HEIGHT / 100 + 5, LETTERS[number], f"letter on middle c{number}")


def _table(curves: Sequence[tuple[int, Curve]], top: int) -> list[str]:
    """Return a row a curve, and for the later ones another with how many times that of the first curve it is."""
    (first, base), *_ = curves
    parts = _row(top, "", [f"p{q:g}" for q in PERCENTILES], "faint")
    y = top
    for number, curve in curves:
        y += svg.LINE
        here = [curve.histogram.percentile(q) for q in PERCENTILES]
        parts.append(svg.text(svg.LEFT, y, LETTERS[number], f"letter c{number}"))
        parts += _row(y, "", [fmt.time(ns) for ns in here], "")
        if number != first:
            y += svg.LINE
            there = [base.histogram.percentile(q) for q in PERCENTILES]
            parts += _row(
                y,
                f"{LETTERS[number]}/{LETTERS[first]}",
                [ratio(a, b) for a, b in zip(here, there, strict=True)],
                "faint",
            )
    return parts


def _row(y: int, name: str, cells: Sequence[str], look: str) -> list[str]:
    parts = [svg.text(svg.LEFT, y, name, look)] if name else []
    figures = [
        svg.text(_FIRST_CELL + column * _CELL, y, cell, f"end figure {look}".rstrip())
        for column, cell in enumerate(cells, 1)
    ]
    return parts + figures
