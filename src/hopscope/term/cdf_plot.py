# SPDX-License-Identifier: Apache-2.0
"""Cumulative distributions drawn with characters: per cent upwards, time on a logarithmic axis.

The first curve is solid, later ones are dotted. Letters on the curves say which is which where there is no colour; in
ASCII the curves are made of them, small, and of ``*`` where two meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from hopscope.model.cdf import points
from hopscope.term import braille
from hopscope.term import format as fmt
from hopscope.term.time_axis import TimeAxis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.cdf import Curve
    from hopscope.term.terminal import Terminal

# Looks of the terminal, by the number of the curve.
LOOKS: Final = ("cyan", "yellow", "magenta", "green", "cyan", "yellow")

_HEIGHT: Final = 17
_MARGIN: Final = 6
_WIDEST: Final = 100
_MARK_WIDTH: Final = 9
_GRID_STEP: Final = 4
_QUARTERS: Final = (100, 75, 50, 25, 0)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One curve as drawn: a character code a cell, 0 where it is not, and the cells where its letter stands."""

    letter: str
    look: str
    cells: npt.NDArray[np.int64]
    labels: set[tuple[int, int]]


def plot(curves: Sequence[tuple[str, Curve]], terminal: Terminal) -> list[str]:
    """Return the lines of a plot of at least one curve, each with its letter and with samples."""
    axis = TimeAxis.of([curve.histogram for _, curve in curves])
    width = min(terminal.width, _WIDEST) - _MARGIN
    layers: list[_Layer] = []
    for number, (letter, curve) in enumerate(curves):
        cells = _cells(curve, axis, width, dotted=number > 0, unicode=terminal.unicode)
        labels = _labels(cells, (number + 0.5) / len(curves))
        layers.append(_Layer(letter, LOOKS[number], cells, labels))
    marks = _marks(axis, width, terminal)
    lines = []
    for row in range(_HEIGHT):
        quarter = next((part for part in _QUARTERS if _row(part / 100) == row), None)
        edge = ("│" if quarter is None else "┤") if terminal.unicode else "|"
        text = "".join(_cell(layers, row, column, marks, terminal) for column in range(width))
        lines.append(f"{'' if quarter is None else f'{quarter}%':>4} {edge}{text}".rstrip())
    return lines + _bottom(marks, width, terminal)


def _row(part: float) -> int:
    return round((1 - part) * (_HEIGHT - 1))


def _cells(curve: Curve, axis: TimeAxis, width: int, *, dotted: bool, unicode: bool) -> npt.NDArray[np.int64]:
    if not unicode:
        return _dots(curve, axis, width, _HEIGHT).astype(np.int64)
    dots = _dots(curve, axis, 2 * width, 4 * _HEIGHT)
    if dotted:
        row, column = np.indices(dots.shape)
        dots &= (row + column) % 4 < 2
    return braille.cells(dots)


def _dots(curve: Curve, axis: TimeAxis, width: int, height: int) -> npt.NDArray[np.bool_]:
    """Return which dots a curve covers, rows from the top: in each column, from where it enters to where it leaves."""
    x_ns, part = points(curve.histogram)
    place = np.array(axis.places(x_ns)) * (width - 1)
    edges = np.clip(np.arange(width + 1) - 0.5, place[0], place[-1])
    # Two points at one place are a jump, which a polyline has no value at: the ends are said outright.
    parts = np.interp(edges, place, part, left=0.0, right=1.0)
    parts[edges <= place[0]], parts[edges >= place[-1]] = part[0], part[-1]
    rows = np.rint((1 - parts) * (height - 1)).astype(int)
    dots = np.zeros((height, width), np.bool_)
    for column in range(round(place[0]), round(place[-1]) + 1):
        dots[rows[column + 1] : rows[column] + 1, column] = True
    return dots


def _labels(cells: npt.NDArray[np.int64], offset: float) -> set[tuple[int, int]]:
    """Return where a curve's letter stands: at four heights, other ones (`offset`, 0..1) for each curve."""
    found = set()
    for quarter in range(4):
        row = round((quarter + offset) / 4 * (_HEIGHT - 1))
        columns = np.flatnonzero(cells[row])
        if len(columns):
            found.add((row, int(columns[len(columns) // 2])))
    return found


def _cell(layers: Sequence[_Layer], row: int, column: int, marks: dict[int, str], terminal: Terminal) -> str:
    labelled = next((layer for layer in layers if (row, column) in layer.labels), None)
    if labelled:
        return terminal.paint(labelled.letter, labelled.look)
    there = [layer for layer in layers if layer.cells[row, column]]
    if not there:
        on_grid = column in marks or (row in map(_row, (0.25, 0.5, 0.75, 1.0)) and column % _GRID_STEP == 0)
        return terminal.paint("·" if terminal.unicode else ".", "dim") if on_grid and row % 2 == 0 else " "
    if terminal.unicode:
        text = chr(braille.BLANK | int(np.bitwise_or.reduce([layer.cells[row, column] for layer in there])))
    else:
        text = there[0].letter.lower() if len(there) == 1 else "*"
    return terminal.paint(text, there[0].look) if len(there) == 1 else text


def _marks(axis: TimeAxis, width: int, terminal: Terminal) -> dict[int, str]:
    """Return column → text of the marks on the time axis."""
    marks = axis.marks_ns(max(width // _MARK_WIDTH, 2))
    return {round(axis.place(ns) * (width - 1)): fmt.time(ns, unicode=terminal.unicode, digits=1) for ns in marks}


def _bottom(marks: dict[int, str], width: int, terminal: Terminal) -> list[str]:
    line, corner, tick = ("─", "└", "┴") if terminal.unicode else ("-", "+", "+")
    axis = "".join(tick if column in marks else line for column in range(width))
    text = [" "] * width
    for column, mark in marks.items():
        start = min(max(column - len(mark) // 2, 0), width - len(mark))
        text[start : start + len(mark)] = mark
    return [" " * (_MARGIN - 1) + corner + axis, (" " * _MARGIN + "".join(text)).rstrip()]
