# SPDX-License-Identifier: Apache-2.0
"""What pictures have in common: SVG files that need nothing else, light or dark as the reader's system is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.gate import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

# Places of all pictures: their width, the margins, where curves and bars are, and the height of a line of text.
WIDTH: Final = 960
LEFT: Final = 84
RIGHT: Final = 24
PLOT_WIDTH: Final = WIDTH - LEFT - RIGHT
LINE: Final = 20
TITLE_TOP: Final = 34
STYLE: Final = """\
svg { font: 13px system-ui, "DejaVu Sans", sans-serif; }
.title { font-size: 17px; font-weight: 600; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.figure { font-variant-numeric: tabular-nums; }"""


class Palette(NamedTuple):
    """Colours: the ground, text, text of less weight, grid, and axes."""

    paper: str
    ink: str
    faint: str
    grid: str
    axis: str

    def rules(self) -> str:
        """Return them as CSS; without variables, which only browsers know."""
        return (
            f".paper {{ fill: {self.paper}; }} text {{ fill: {self.ink}; }} .faint {{ fill: {self.faint}; }} "
            f".grid {{ stroke: {self.grid}; }} .axis {{ stroke: {self.axis}; }}"
        )


# Of curves and bars, on a light and on a dark ground. The first ones are those of Okabe and Ito, which the colour-blind
# can tell apart.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#7a5c00", "#4a4a4a", "#56b4e9", "#e69f00")
DARK_COLOURS: Final = ("#56b4e9", "#ff9d5c", "#2fd6a8", "#e59ac8", "#f0e442", "#c8c8c8", "#0072b2", "#e69f00")
LIGHT: Final = Palette("#ffffff", "#1b1f24", "#5b6570", "#dde1e6", "#8a949e")
DARK: Final = Palette("#15191e", "#e6eaee", "#a3adb8", "#2b323a", "#6c7782")


def document(title: str, size: tuple[int, int], rules: tuple[str, str, str], parts: Sequence[str]) -> str:
    """Return a file: its rules in CSS are those of any ground, of a light one, and of a dark one."""
    both, light, dark = rules
    width, height = size
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    dark_rules = f"@media (prefers-color-scheme: dark) {{ {DARK.rules()} {dark} }}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-labelledby="title">',
        f'<title id="title">{clean(title)}</title>',
        f"<style>\n{STYLE}\n{both}\n{LIGHT.rules()} {light}\n{dark_rules}\n</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, said: str, look: str = "") -> str:
    """Return a text, which is clean."""
    style = f' class="{look}"' if look else ""
    return f'<text x="{x:g}" y="{y:g}"{style}>{said}</text>'


def clean(said: str) -> str:
    """Return what XML can hold: no control characters, nothing that is markup."""
    return escape(one_line(said))
