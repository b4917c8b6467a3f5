# SPDX-License-Identifier: Apache-2.0
"""One TCP connection over time, as an SVG file: its progress, windows, round-trip time, and what limited it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.term import format as fmt
from hopscope.term import svg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_BAND: Final = 18
_HINTS: Final = 160  # parts of the width that say what holds there
_NS_PER_S: Final = 1e9
_LINES: Final = ("none", "6 3", "2 3")  # they differ in their dashes, too
_SHAPES: Final = (
    ".axis, .line { fill: none; } .line { stroke-width: 1.5; } .again { stroke: #c00; stroke-width: 1.5; } "
    ".hint { fill: transparent; } "
    + " ".join(f".line.c{at} {{ stroke-dasharray: {dash}; }}" for at, dash in enumerate(_LINES))
)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """What has a value from one time to the next.

    Attributes
    ----------
    name
        In the key.
    values : ndarray of float64, shape (n,)
        At the connection's times; NaN: there is none.
    """

    name: str
    values: Values


class Span(NamedTuple):
    """When something kept the connection from sending, s."""

    cause: str
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """What is drawn.

    Attributes
    ----------
    name
        Of the connection.
    times_s : ndarray of float64, shape (n,)
        When its state was recorded, since the start of the recording; at least one.
    sequence, packets, delays_ns
        Lines: sequence numbers since the first state; packets; durations.
    spans
        What kept it from sending.
    resent_s
        When it sent segments again.
    """

    name: str
    times_s: Values
    sequence: Sequence[Line]
    packets: Sequence[Line]
    delays_ns: Sequence[Line]
    spans: Sequence[Span] = ()
    resent_s: Sequence[float] = field(default_factory=tuple)


def render_connection(connection: Connection) -> str:
    """Return the picture as an SVG document."""
    parts = [svg.text(svg.LEFT, svg.TITLE_TOP, svg.clean(connection.name), "title")]
    top = 72
    for title, lines, height, unit in (
        ("sequence numbers", connection.sequence, 260, _count),
        ("packets", connection.packets, 150, _count),
        ("smoothed round-trip time", connection.delays_ns, 100, _time),
    ):
        parts += _panel(connection, title, lines, (top, height), unit)
        top += height + 3 * svg.LINE
    parts += _bands(connection, top)
    rules = _SHAPES, _colours(svg.COLOURS), _colours(svg.DARK_COLOURS)
    return svg.document(connection.name, (svg.WIDTH, top + _BAND + 2 * svg.LINE), rules, parts)


def _colours(colours: Sequence[str]) -> str:
    return " ".join(
        f".line.c{at} {{ stroke: {colour}; }} .key.c{at}, .band.c{at} {{ fill: {colour}; }}"
        for at, colour in enumerate(colours)
    )


def _panel(
    connection: Connection, title: str, lines: Sequence[Line], place: tuple[int, int], unit: Callable[[float], str]
) -> list[str]:
    top, height = place
    bottom = top + height
    most = max((float(np.nanmax(line.values)) for line in lines if not np.isnan(line.values).all()), default=0) or 1.0
    parts = [svg.text(svg.LEFT, top - 8, title)]
    x = svg.LEFT + svg.PLOT_WIDTH
    for at, line in reversed(list(enumerate(lines))):
        x -= 7 * len(line.name) + 24
        parts.append(f'<rect class="key c{at}" x="{x}" y="{top - 17}" width="10" height="10"/>')
        parts.append(svg.text(x + 14, top - 8, svg.clean(line.name), "faint"))
    parts.append(f'<path class="axis" d="M{svg.LEFT} {top}V{bottom}H{svg.LEFT + svg.PLOT_WIDTH}"/>')
    parts.append(svg.text(svg.LEFT - 8, top + 10, svg.clean(unit(most)), "end faint figure"))
    parts.append(svg.text(svg.LEFT - 8, bottom, "0", "end faint figure"))
    parts += _times(connection, bottom)
    for at, line in enumerate(lines):
        if path := _path(connection, line.values, (bottom, height / most)):
            parts.append(f'<path class="line c{at}" d="{path}"/>')
    if title == "sequence numbers":
        for at_s in connection.resent_s:
            x_again = _x(connection, at_s)
            said = f"<title>{at_s:.6f} s: sent again</title>"
            parts.append(f'<path class="again" d="M{x_again:.1f} {bottom}v-8">{said}</path>')
    return parts + _hints(connection, lines, place, unit)


def _times(connection: Connection, bottom: int) -> list[str]:
    first_s, last_s = connection.times_s[0], connection.times_s[-1]
    return [
        svg.text(svg.LEFT, bottom + 16, f"{first_s:.3f} s", "faint figure"),
        svg.text(svg.LEFT + svg.PLOT_WIDTH, bottom + 16, f"{last_s:.3f} s", "end faint figure"),
    ]


def _x(connection: Connection, at_s: Any) -> Any:  # noqa: ANN401 # a time or many
    first_s, last_s = connection.times_s[0], connection.times_s[-1]
    return svg.LEFT + (at_s - first_s) / ((last_s - first_s) or 1.0) * svg.PLOT_WIDTH


def _path(connection: Connection, values: Values, scale: tuple[int, float]) -> str:
    """Return the steps of a line: of each column of pixels, its extremes, and the last value."""
    known = ~np.isnan(values)
    if not known.any():
        return ""
    x, y = _x(connection, connection.times_s[known]), scale[0] - values[known] * scale[1]
    column = x.astype(int)
    firsts = np.flatnonzero(np.diff(column, prepend=-1))
    low, high = np.minimum.reduceat(y, firsts), np.maximum.reduceat(y, firsts)
    last = y[np.append(firsts[1:], len(y)) - 1]
    steps = [
        f"H{at:.1f}V{top:.1f}V{bottom:.1f}V{end:.1f}"
        for at, top, bottom, end in zip(x[firsts], low, high, last, strict=True)
    ]
    return f"M{x[0]:.1f} {y[0]:.1f}{''.join(steps)}H{svg.LEFT + svg.PLOT_WIDTH}"


def _hints(
    connection: Connection, lines: Sequence[Line], place: tuple[int, int], unit: Callable[[float], str]
) -> list[str]:
    """Return the text of a tooltip: the values that hold there."""
    top, height = place
    first_s, last_s = connection.times_s[0], connection.times_s[-1]
    ends_s = first_s + (last_s - first_s) * np.arange(1, _HINTS + 1) / _HINTS
    at = np.searchsorted(connection.times_s, ends_s, "right") - 1
    width = svg.PLOT_WIDTH / _HINTS
    hints = []
    for number, row in enumerate(at.tolist()):
        values = [f"{line.name} {unit(float(line.values[row]))}" for line in lines if not np.isnan(line.values[row])]
        said = svg.clean(f"{connection.times_s[row]:.6f} s: {', '.join(values)}")
        hints.append(
            f'<rect class="hint" x="{svg.LEFT + number * width:.1f}" y="{top}" width="{width:.1f}" height="{height}">'
            f"<title>{said}</title></rect>"
        )
    return hints


def _bands(connection: Connection, top: int) -> list[str]:
    """Return what kept it from sending, and when."""
    causes = sorted({span.cause for span in connection.spans})
    title = "kept from sending by" if causes else "nothing was recorded that kept it from sending"
    parts = [svg.text(svg.LEFT, top - 8, title)]
    x = svg.LEFT + 150
    for at, cause in enumerate(causes):
        colour = at % len(svg.COLOURS)
        parts.append(f'<rect class="key c{colour}" x="{x}" y="{top - 17}" width="10" height="10"/>')
        parts.append(svg.text(x + 14, top - 8, svg.clean(cause), "faint"))
        x += 7 * len(cause) + 34
    for span in connection.spans:
        begin, end = _x(connection, span.from_s), _x(connection, span.until_s)
        said = svg.clean(f"{span.from_s:.6f} s to {span.until_s:.6f} s: {span.cause}")
        parts.append(
            f'<rect class="band c{causes.index(span.cause) % len(svg.COLOURS)}" x="{begin:.2f}" y="{top}" '
            f'width="{max(end - begin, 0.2):.2f}" height="{_BAND}"><title>{said}</title></rect>'
        )
    return parts + _times(connection, top + _BAND)


def _count(number: float) -> str:
    return fmt.count(round(number))


def _time(ns: float) -> str:
    return fmt.time(ns, digits=2, gap=" ")
