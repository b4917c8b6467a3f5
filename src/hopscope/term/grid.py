# SPDX-License-Identifier: Apache-2.0
"""Small tables of text: columns as wide as what is in them, the least telling ones left out where they do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.term.terminal import columns, pad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.term.terminal import Terminal

_LEAST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes
    ----------
    title
        Its heading.
    cells
        One a row.
    rank
        Columns of the highest rank are left out first where the terminal is too narrow; those of rank 0 never are.
    left
        Whether it is text, which stands at the left and may be cut.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False

    def width(self, terminal: Terminal) -> int:
        """Return how wide its widest cell is."""
        return max(columns(terminal.text(text)) for text in (self.title, *self.cells))


def render_grid(table: Sequence[Column], terminal: Terminal, bold: frozenset[int] = frozenset()) -> list[str]:
    """Return the lines of a table, its titles first; rows in `bold` stand out where there is colour."""
    shown, widths = list(table), [column.width(terminal) for column in table]
    while (too_wide := _total(widths) - terminal.width) > 0 and any(column.rank for column in shown):
        least = max(range(len(shown)), key=lambda index: shown[index].rank)
        del shown[least], widths[least]
    texts = [index for index, column in enumerate(shown) if column.left]
    while too_wide > 0 and texts:
        widest = max(texts, key=lambda index: widths[index])
        taken = min(too_wide, max(widths[widest] - _LEAST, 0))
        if not taken:
            break
        widths[widest] -= taken
        too_wide -= taken
    lines = [terminal.paint(_line([column.title for column in shown], shown, widths, terminal), "dim")]
    for index in range(len(table[0].cells)):
        text = _line([column.cells[index] for column in shown], shown, widths, terminal)
        lines.append(terminal.paint(text, "bold") if index in bold else text)
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _line(cells: Sequence[str], shown: Sequence[Column], widths: Sequence[int], terminal: Terminal) -> str:
    parts = []
    for cell, column, width in zip(cells, shown, widths, strict=True):
        text = terminal.cut(cell, width)
        parts.append(pad(text, width) if column.left else " " * (width - columns(text)) + text)
    return "  ".join(parts).rstrip()
