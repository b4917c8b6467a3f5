# SPDX-License-Identifier: Apache-2.0
"""Cumulative distributions as text: a plot, a table of percentiles, and how far apart they are in words."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from hopscope.model.cdf import PERCENTILES, distance, shift
from hopscope.term import format as fmt
from hopscope.term.cdf_plot import LOOKS, plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.cdf import Curve, Distance, Shift
    from hopscope.term.terminal import Terminal

LETTERS: Final = "ABCDEF"
# Percentiles of which the words tell.
SHIFTS: Final = (50.0, 99.0)

_FIGURE: Final = 7


def render_cdf(curves: Sequence[Curve], terminal: Terminal) -> str:
    """Return legend, plot, percentiles and the words, as lines without a line end after the last.

    Parameters
    ----------
    curves
        At most six; the later ones are compared with the first. Those without samples are named and not drawn.
    terminal
        What can be shown.
    """
    lines = []
    for letter, curve, look in zip(LETTERS, curves, LOOKS, strict=False):
        first, *rest = terminal.fold(f"{letter}  {legend(curve, unicode=terminal.unicode)}", indent=3)
        lines += [terminal.paint(line, look) for line in (first, *rest)]
    drawn = [(letter, curve) for letter, curve in zip(LETTERS, curves, strict=False) if curve.histogram.count]
    if drawn:
        lines += ["", *plot(drawn, terminal), "", *_table(drawn, terminal), ""]
    for text in verdicts(drawn, unicode=terminal.unicode):
        lines += terminal.fold(text)
    return "\n".join(lines)


def legend(curve: Curve, *, unicode: bool = True) -> str:
    """Return a curve's name and how much there is of it."""
    times = curve.histogram
    if not times.count:
        return f"{curve.name}: no samples"
    mean, most = (fmt.time(value, unicode=unicode) for value in (times.mean_ns, times.max_ns))
    return f"{curve.name}: {fmt.plural(times.count, 'sample')}, mean {mean}, max {most}"


def verdicts(curves: Sequence[tuple[str, Curve]], *, unicode: bool = True) -> list[str]:
    """Return sentences on how far each later curve is from the first."""
    sentences = []
    for letter, curve in curves[1:]:
        first_letter, first = curves[0]
        apart = distance(first.histogram, curve.histogram)
        shifts = [shift(first.histogram, curve.histogram, q) for q in SHIFTS]
        if apart:
            moved = ", ".join(_shift(each) for each in shifts if each)
            sentences += [
                f"{letter} against {first_letter}: {moved}.",
                _distance(apart, first_letter, letter, unicode=unicode),
            ]
    return sentences


def _shift(moved: Shift) -> str:
    name = _percentile(moved.q)
    if moved.ratio is None or not isfinite(moved.most):
        return f"{name} cannot be compared: it lies in the first bucket"
    bounds = f"{_times(moved.least)} to {_times(moved.most)}"
    if moved.known:
        return f"{name} is {_times(moved.ratio)} times as long ({bounds})"
    return f"{name} is the same within the accuracy of the buckets ({bounds} times)"


def _distance(apart: Distance, first: str, other: str, *, unicode: bool) -> str:
    bounds = f"{apart.at_least:.3f}"
    if apart.at_most - apart.at_least >= 0.0005:
        bounds += f" to {apart.at_most:.3f} (uncertainty due to the buckets)"
    text = (
        f"Kolmogorov-Smirnov distance {bounds}; by chance alone it would be below {apart.by_chance:.3f} in "
        "99 of 100 cases"
    )
    if apart.at_most < apart.by_chance:
        return f"{text}: no significant difference with this number of samples."
    at = fmt.time(apart.at_ns, unicode=unicode)
    return (
        f"{text}. The largest distance is at {at}, which {apart.before:.1%} of {first} and "
        f"{apart.after:.1%} of {other} do not exceed."
    )


def ratio(later_ns: float | None, first_ns: float | None) -> str:
    """Return how many times the first duration the later one is, at most 5 columns; ``-`` where one is not there."""
    return _times(later_ns / first_ns) if first_ns and later_ns is not None else fmt.MISSING


def _times(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else fmt.rate(value)


def _percentile(q: float) -> str:
    return f"p{q:g}"


# ---- the table ----


def _table(curves: Sequence[tuple[str, Curve]], terminal: Terminal) -> list[str]:
    """Return a line a percentile; curves that do not fit side by side stand below, with the first one again."""
    width = len(_percentile(PERCENTILES[-1]))
    room = max((terminal.width - width - _FIGURE) // (2 * _FIGURE), 1)
    blocks = [[curves[0], *curves[1:][start : start + room]] for start in range(0, max(len(curves) - 1, 1), room)]
    lines = []
    for block in blocks:
        titles, *figures = _block(block, terminal)
        lines += [terminal.paint(titles, "dim"), *figures]
    return lines


def _block(curves: Sequence[tuple[str, Curve]], terminal: Terminal) -> list[str]:
    (first, base), *later = curves
    titles = [first, *(title for letter, _ in later for title in (letter, f"{letter}/{first}"))]
    lines = ["     " + "".join(title.rjust(_FIGURE) for title in titles)]
    for q in PERCENTILES:
        old_ns = base.histogram.percentile(q)
        cells = [fmt.time(old_ns, unicode=terminal.unicode)]
        for _, curve in later:
            new_ns = curve.histogram.percentile(q)
            cells.append(fmt.time(new_ns, unicode=terminal.unicode))
            cells.append(ratio(new_ns, old_ns))
        lines.append(_percentile(q).ljust(5) + "".join(cell.rjust(_FIGURE) for cell in cells))
    return lines
