# SPDX-License-Identifier: Apache-2.0
"""Durations over time as heat maps, one below the other: an SVG file. A cell is a bucket of the histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.histogram import lower_bounds_s, upper_bounds_s
from hopscope.term import format as fmt
from hopscope.term import svg
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.histogram import I64

_CELL_HEIGHT: Final = 6
_FEWEST_ROWS: Final = 6
_NAME_COLUMNS: Final = 110
_NS_PER_S: Final = 1e9
_FAINTEST: Final = 0.12
_RULES: Final = (".axis { fill: none; }", ".cell { fill: #0a5c8f; }", ".cell { fill: #6cc0f5; }")


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """Durations of one kind.

    Attributes
    ----------
    name
        Of what.
    counts
        By slice of time and bucket (:mod:`hopscope.model.histogram`).
    """

    name: str
    counts: I64


def render_heatmap(title: str, bounds_s: Sequence[float], heats: Sequence[Heat]) -> str:
    """Return the picture as an SVG document.

    Parameters
    ----------
    title
        Stands above it.
    bounds_s
        Bounds of the slices, since the start of the recording.
    heats
        Those to draw, from above to below.
    """
    parts = [svg.text(svg.LEFT, svg.TITLE_TOP, svg.clean(title), "title")]
    top = 64
    for heat in heats:
        panel, top = _panel(heat, bounds_s, top)
        parts += panel
    if not heats:
        parts.append(svg.text(svg.LEFT, top, "No packet took a hop.", "faint"))
    return svg.document(title, (svg.WIDTH, top + 10), _RULES, parts)


def _panel(heat: Heat, bounds_s: Sequence[float], top: int) -> tuple[list[str], int]:
    """Return one heat map, and where the next begins."""
    used = np.flatnonzero(heat.counts.sum(axis=0))
    low = int(used[0])
    high = max(int(used[-1]), low + _FEWEST_ROWS - 1)
    count = int(heat.counts.sum())
    said = f"{heat.name}: {plural(count, 'packet')}"
    parts = [svg.text(svg.LEFT, top, svg.clean(said if len(said) <= _NAME_COLUMNS else f"{said[:_NAME_COLUMNS]}…"))]
    above, rows = top + 8, high - low + 1
    below = above + rows * _CELL_HEIGHT
    parts.append(f'<path class="axis" d="M{svg.LEFT} {above}V{below}H{svg.LEFT + svg.PLOT_WIDTH}"/>')
    parts.append(svg.text(svg.LEFT - 8, above + 10, _upper(high), "end faint figure"))
    parts.append(svg.text(svg.LEFT - 8, below, _lower(low), "end faint figure"))
    parts.append(svg.text(svg.LEFT, below + 16, f"{bounds_s[0]:.3f} s", "faint figure"))
    parts.append(svg.text(svg.LEFT + svg.PLOT_WIDTH, below + 16, f"{bounds_s[-1]:.3f} s", "end faint figure"))
    return parts + _cells(heat, bounds_s, (low, high), above), below + 16 + 2 * svg.LINE


def _cells(heat: Heat, bounds_s: Sequence[float], shown: tuple[int, int], above: int) -> list[str]:
    """Return the cells that have anything; the more, the stronger: of ten times as many, as much in any part."""
    most = np.log1p(heat.counts.max())
    width = svg.PLOT_WIDTH / len(heat.counts)
    cells = []
    for column, bucket in np.argwhere(heat.counts > 0).tolist():
        count = int(heat.counts[column, bucket])
        strength = _FAINTEST + (1 - _FAINTEST) * float(np.log1p(count) / most)
        x, y = svg.LEFT + column * width, above + (shown[1] - bucket) * _CELL_HEIGHT
        span = f"{bounds_s[column]:.3f} s to {bounds_s[column + 1]:.3f} s"
        said = f"{span}: {plural(count, 'packet')} took {_lower(bucket)} to {_upper(bucket)}"
        cells.append(
            f'<rect class="cell" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_CELL_HEIGHT}" '
            f'fill-opacity="{strength:.2f}"><title>{said}</title></rect>'
        )
    return cells


def _lower(bucket: int) -> str:
    return fmt.time(float(lower_bounds_s()[bucket]) * _NS_PER_S, digits=2, gap=" ")


def _upper(bucket: int) -> str:
    bound_s = float(upper_bounds_s()[bucket])
    return "more" if np.isinf(bound_s) else fmt.time(bound_s * _NS_PER_S, digits=2, gap=" ")
