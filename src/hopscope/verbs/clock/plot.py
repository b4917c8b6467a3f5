# SPDX-License-Identifier: Apache-2.0
"""The offset of two clocks over time, drawn with characters: what is left of it without its mean drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.term import braille
from hopscope.term import format as fmt
from hopscope.verbs.clock.table import exact, ppb

if TYPE_CHECKING:
    import numpy.typing as npt

    from hopscope.term.terminal import Terminal
    from hopscope.verbs.clock.report import History, PairRow

_HEIGHT: Final = 8
_MARGIN: Final = 11
_WIDEST: Final = 100
# Less is the noise of the stamps.
_LEAST_NS: Final = 20.0
_FEWEST: Final = 3
_SECOND: Final = 1e9


def render_plot(row: PairRow, terminal: Terminal) -> list[str]:
    """Return the lines of a plot, none where there are too few windows."""
    if row.history is None or len(row.history.at_ns) < _FEWEST:
        return []
    at_ns, left_ns, drift = _without_drift(row.history)
    width = min(terminal.width, _WIDEST) - _MARGIN
    top_ns = max(float(np.abs(left_ns).max()), _LEAST_NS)
    bound_ns = float(np.median(row.history.bound_ns))
    start = exact(int(row.history.offset_ns[0]))
    title = (
        f"{row.second} relative to {row.first}, minus the initial offset ({start}) and drift ({ppb(drift)} "
        f"ppb); bound {fmt.time(bound_ns, unicode=terminal.unicode)}"
    )
    lines = terminal.fold(title)
    lines += _drawn(at_ns, left_ns, top_ns, width, terminal)
    corner, line = ("└", "─") if terminal.unicode else ("+", "-")
    span = fmt.time(float(at_ns[-1]), unicode=terminal.unicode)
    lines.append(" " * (_MARGIN - 1) + corner + line * width)
    lines.append(" " * _MARGIN + "0" + span.rjust(width - 1))
    return lines


def _without_drift(history: History) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """Return times since the first, what is left of the offset around a line through all, and the line's slope."""
    at_ns = (history.at_ns - history.at_ns[0]).astype(np.float64)
    offset_ns = (history.offset_ns - history.offset_ns[0]).astype(np.float64)
    slope, height = np.polyfit(at_ns, offset_ns, 1)
    return at_ns, offset_ns - height - slope * at_ns, float(slope)


def _drawn(
    at_ns: npt.NDArray[np.float64], left_ns: npt.NDArray[np.float64], top_ns: float, width: int, terminal: Terminal
) -> list[str]:
    height, wide = (4 * _HEIGHT, 2 * width) if terminal.unicode else (_HEIGHT, width)
    edges = np.interp(np.linspace(0, at_ns[-1], wide + 1), at_ns, left_ns)
    rows = np.rint((1 - edges / top_ns) / 2 * (height - 1)).astype(int)
    dots = np.zeros((height, wide), np.bool_)
    for column in range(wide):
        ends = sorted(rows[column : column + 2])
        dots[ends[0] : ends[1] + 1, column] = True
    cells = braille.cells(dots) if terminal.unicode else dots.astype(np.int64)
    labels = {0: f"+{_time(top_ns, terminal)}", _HEIGHT - 1: f"-{_time(top_ns, terminal)}"}
    edge, tick = ("│", "┤") if terminal.unicode else ("|", "+")
    lines = []
    for number, row in enumerate(cells.tolist()):
        text = "".join(_cell(cell, terminal) for cell in row)
        lines.append(f"{labels.get(number, ''):>{_MARGIN - 2}} {tick if number in labels else edge}{text}".rstrip())
    return lines


def _cell(cell: int, terminal: Terminal) -> str:
    if not cell:
        return " "
    return terminal.paint(chr(braille.BLANK | cell) if terminal.unicode else "*", "cyan")


def _time(value_ns: float, terminal: Terminal) -> str:
    return fmt.time(value_ns, unicode=terminal.unicode)
