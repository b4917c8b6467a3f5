# SPDX-License-Identifier: Apache-2.0
"""Full histograms as text: a line a bucket, upper bounds inclusive."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.model.histogram import SCALE, Histogram
from hopscope.term import format as fmt
from hopscope.term.footer import footer
from hopscope.term.table import heading, nothing_seen

if TYPE_CHECKING:
    from hopscope.model.histogram import Buckets
    from hopscope.model.snapshot import HopRow, Snapshot
    from hopscope.term.terminal import Terminal

EIGHTHS: Final = "▏▎▍▌▋▊▉█"

_LONG_GAP = 3
_WIDEST_BAR = 50
_RANGE_WIDTH = 18


class _Line(NamedTuple):
    """A bucket's bounds and samples; `samples` None for a run of empty buckets, said by `bounds`."""

    bounds: str
    samples: int | None


def render_histograms(snapshot: Snapshot, terminal: Terminal, *, max_lines: int | None = None) -> str:
    """Return heading, one histogram per hop and group with samples (or one sentence if none has any), and footer.

    Parameters
    ----------
    snapshot
        What to show.
    terminal
        What can be shown.
    max_lines
        Buckets of a histogram that would take more lines than this are merged, down to one a doubling (scale 0).
        None shows them as they were measured, eight a doubling.
    """
    lines = heading(snapshot, terminal)
    rows = [row for row in snapshot.hops if row.histogram.count]
    for row in rows:
        lines += ["", *hop_lines(row, terminal, max_lines)]
    if not rows:
        lines += terminal.fold(nothing_seen(snapshot))
    return "\n".join([*lines, "", *footer(snapshot, terminal)])


def hop_lines(row: HopRow, terminal: Terminal, max_lines: int | None) -> list[str]:
    """Return a hop's title, summary and buckets; at most so many buckets, if merging makes them that few."""
    group = "".join(f"  {key}={value}" for key, value in row.group.items())
    title = f"{row.hop}{group}  ({row.from_point} → {row.to_point}, by {row.unit})"
    lines = [terminal.paint(line, "bold") for line in terminal.fold(title)]
    lines += terminal.fold(_summary(row, terminal))
    scale = SCALE
    bucket_lines = _bucket_lines(row.histogram.downscale(scale), terminal)
    while max_lines is not None and len(bucket_lines) > max_lines and scale > 0:
        scale -= 1
        bucket_lines = _bucket_lines(row.histogram.downscale(scale), terminal)
    return lines + _draw(bucket_lines, terminal)


def _summary(row: HopRow, terminal: Terminal) -> str:
    histogram = row.histogram
    figures = {
        "sum": histogram.sum_ns,
        "mean": histogram.mean_ns,
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        "max": histogram.max_ns,
    }
    times = ", ".join(f"{name} {fmt.time(value, unicode=terminal.unicode, gap=' ')}" for name, value in figures.items())
    return f"count {histogram.count:,}, {times}"


def _bucket_lines(buckets: Buckets, terminal: Terminal) -> list[_Line]:
    edges = _edges(buckets.scale, unicode=terminal.unicode)
    lines = [_Line(f"[0 ns, {edges[0]}]", buckets.zero_count)] if buckets.zero_count else []
    used = np.flatnonzero(buckets.counts).tolist()
    previous = used[0] - 1 if used else 0
    for bucket in used:
        empty = bucket - previous - 1
        if empty > _LONG_GAP:
            lines.append(_Line(f"{empty} empty", None))
        else:
            lines += [_Line(_bounds(edges, between), 0) for between in range(previous + 1, bucket)]
        lines.append(_Line(_bounds(edges, bucket), int(buckets.counts[bucket])))
        previous = bucket
    if buckets.overflow_count:
        lines.append(_Line(f"({edges[-1]}, {'∞' if terminal.unicode else 'inf'})", buckets.overflow_count))
    return lines


@cache
def _edges(scale: int, *, unicode: bool) -> list[str]:
    """Return the bounds of all buckets of a scale, which are the same in every histogram."""
    edges_s = Histogram.empty().downscale(scale).edges_s().tolist()
    return [fmt.time(edge_s * 1e9, unicode=unicode, gap=" ") for edge_s in edges_s]


def _bounds(edges: list[str], bucket: int) -> str:
    return f"({edges[bucket]}, {edges[bucket + 1]}]"


def _draw(lines: list[_Line], terminal: Terminal) -> list[str]:
    counts = [line.samples or 0 for line in lines]
    count_width = len(f"{max(counts):,}")
    bar_width = min(terminal.width - _RANGE_WIDTH - count_width - 4, _WIDEST_BAR)
    drawn = []
    for line in lines:
        if line.samples is None:
            drawn.append(terminal.paint(line.bounds.rjust(_RANGE_WIDTH), "dim"))
            continue
        bar = _bar(line.samples, max(counts), bar_width, unicode=terminal.unicode)
        drawn.append(f"{line.bounds.rjust(_RANGE_WIDTH)} {line.samples:>{count_width},} |{bar.ljust(bar_width)}|")
    return drawn


def _bar(count: int, most: int, width: int, *, unicode: bool) -> str:
    """Return a bar in proportion; the smallest count above zero is still seen."""
    if not unicode:
        return "@" * -(-count * width // most)
    whole, rest = divmod(-(-count * width * len(EIGHTHS) // most), len(EIGHTHS))
    return EIGHTHS[-1] * whole + (EIGHTHS[rest - 1] if rest else "")
