# SPDX-License-Identifier: Apache-2.0
"""The table of an interval: one line a hop, in the order in which a packet passes them.

A hop's share is its part of the time of all hops of its protocol; the largest stands out where there is colour.
Columns have fixed widths, so that nothing moves between intervals; what does not fit is left out, the least
telling column first. No line is wider than the terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hopscope.model.sampled import CONFIDENCE_PERCENT
from hopscope.model.share import TOTAL_SUFFIX, shares
from hopscope.model.snapshot import PARTS_OF_WAKE, PERCENTILES
from hopscope.term import format as fmt
from hopscope.term.bar import BAR_WIDTH, Axis
from hopscope.term.footer import footer
from hopscope.term.terminal import Terminal, columns, pad

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hopscope.model.sampled import Coverage
    from hopscope.model.share import Share
    from hopscope.model.snapshot import HopRow, Snapshot

WIDTHS: Final = {
    "share": 5,
    "count": 6,
    "rate/s": 6,
    "mean": 6,
    "p50": 6,
    "±p50": 6,
    "p90": 6,
    "p99": 6,
    "±p99": 6,
    "p99.9": 6,
    "max": 6,
}
# How far the percentile before it may be off, where a part was measured.
_ERRORS: Final = {"±p50": "p50", "±p99": "p99"}
_MOST_SHARE: Final = 9.995
_NEARLY_ALL: Final = 0.995
_MOST_TIMES: Final = 99
LEFT_OUT_FIRST: Final = ("p90", "rate/s", "bar", "p99.9", "mean", "max", "±p50", "share", "±p99", "count")

_HOP_WIDTH = 13
_WIDEST_BAR = 24


@dataclass(frozen=True, slots=True)
class Layout:
    """What fits: the hop column's width, group columns, figures, the bar's width (0: none), blanks between columns."""

    hop_width: int
    groups: dict[str, int]
    figures: list[str]
    bar_width: int
    gap: int


def render_table(snapshot: Snapshot, terminal: Terminal) -> str:
    """Return heading, table and footer of a snapshot as lines without a line end after the last."""
    lines = heading(snapshot, terminal)
    if snapshot.sample_count:
        lines += _table(snapshot, terminal)
    else:
        lines += terminal.fold(nothing_seen(snapshot))
    return "\n".join(lines + footer(snapshot, terminal))


def heading(snapshot: Snapshot, terminal: Terminal) -> list[str]:
    """Return the lines that say when, what, and of which packets."""
    start = datetime.fromtimestamp(snapshot.started_ns // 10**9, UTC)
    length = fmt.time(snapshot.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if snapshot.kind == "total" else length
    lines = terminal.fold(f"{snapshot.verb}  {start:%Y-%m-%d %H:%M:%S} UTC  {what}")
    if snapshot.filters:
        lines += terminal.fold("only " + _filters(snapshot))
    if snapshot.coverage:
        lines += terminal.fold(_covered(snapshot.coverage))
    if snapshot.sampling_1_in > 1:
        lines += terminal.fold(f"sampled: 1 in {snapshot.sampling_1_in} packets; counts are of the sampled ones")
    return [terminal.paint(line, "dim") for line in lines]


def choose_layout(rows: Sequence[HopRow], terminal: Terminal) -> Layout:
    """Return the columns that fit a terminal, wide ones with more air and a wider bar."""
    hop_width = min(max(_HOP_WIDTH, *(len(name) for name in _indented(rows))), terminal.width // 2)
    keys = list(dict.fromkeys(key for row in rows for key in row.group))
    least = hop_width + sum(WIDTHS[name] + 1 for name in WIDTHS if name not in LEFT_OUT_FIRST)
    groups = _group_widths(rows, keys, terminal, terminal.width - least)
    fixed = hop_width + sum(width + 1 for width in groups.values())
    measured_whole = all(row.bounds is None for row in rows)
    figures = [name for name in WIDTHS if not (measured_whole and name in _ERRORS)]
    bar_width = BAR_WIDTH
    for name in ("", *LEFT_OUT_FIRST):
        figures = [figure for figure in figures if figure != name]
        bar_width = 0 if name == "bar" else bar_width
        needed = fixed + sum(WIDTHS[figure] + 1 for figure in figures) + (bar_width + 1 if bar_width else 0)
        if needed <= terminal.width:
            break
    spare = terminal.width - needed
    gaps = len(groups) + len(figures) + bool(bar_width)
    gap = 2 if spare >= gaps else 1
    if bar_width:
        bar_width = min(bar_width + spare - (gap - 1) * gaps, _WIDEST_BAR)
    return Layout(hop_width, groups, figures, bar_width, gap)


def _group_widths(rows: Sequence[HopRow], keys: Sequence[str], terminal: Terminal, room: int) -> dict[str, int]:
    """Return widths that leave room for the least of the table, taken from the widest column first."""
    widths = {
        key: max(columns(terminal.text(text)) for text in (key, *(row.group.get(key, "") for row in rows)))
        for key in keys
    }
    limit = max(terminal.width // 4, 8)
    widths = {key: min(width, limit) for key, width in widths.items()}
    while widths and sum(widths.values()) + len(widths) > room and max(widths.values()) > 1:
        widest = max(widths, key=lambda key: widths[key])
        widths[widest] -= 1
    return widths


def _table(snapshot: Snapshot, terminal: Terminal) -> list[str]:
    # A hop that nothing passed is no line: hosts with TCP alone should not look at five lines of nothing for UDP.
    rows = [row for row in snapshot.hops if row.histogram.count]
    layout = choose_layout(rows, terminal)
    axis = Axis.of([row.histogram for row in rows], layout.bar_width) if layout.bar_width else None
    names = _indented(rows)
    lines = [terminal.paint(_titles(layout, axis, terminal), "dim")]
    for row, name, share in zip(rows, names, shares(rows), strict=True):
        figures = _figures(row, share, _represented_s(snapshot), terminal)
        cells = [pad(terminal.cut(row.group.get(key, ""), width), width) for key, width in layout.groups.items()]
        cells.append(pad(terminal.cut(name, layout.hop_width), layout.hop_width))
        cells += [figures[figure].rjust(WIDTHS[figure]) for figure in layout.figures]
        if axis:
            cells.append(axis.bar(row.histogram, unicode=terminal.unicode))
        text = (" " * layout.gap).join(cells).rstrip()
        lines.append(terminal.paint(text, "bold") if share and share.largest else text)
    return lines


def _titles(layout: Layout, axis: Axis | None, terminal: Terminal) -> str:
    cells = [pad(terminal.cut(key, width), width) for key, width in layout.groups.items()]
    cells.append("hop".ljust(layout.hop_width))
    cells += [figure.rjust(WIDTHS[figure]) for figure in layout.figures]
    if axis:
        cells.append(axis.title(unicode=terminal.unicode))
    return (" " * layout.gap).join(cells).rstrip()


def _figures(row: HopRow, share: Share | None, duration_s: float, terminal: Terminal) -> dict[str, str]:
    histogram = row.histogram
    count = histogram.count
    times = {name: histogram.percentile(q) for name, q in PERCENTILES.items()}
    times |= {"mean": histogram.mean_ns, "max": histogram.max_ns if count else None}
    texts = {name: fmt.time(value, unicode=terminal.unicode) for name, value in times.items()}
    texts |= {name: _error(row, of, terminal) for name, of in _ERRORS.items()}
    return texts | {
        "share": fmt.part(share.part) if share else "",
        "count": fmt.count(count),
        "rate/s": fmt.rate(count / duration_s) if duration_s > 0 else fmt.MISSING,
    }


def _represented_s(snapshot: Snapshot) -> float:
    """Return the time that counts are of."""
    return snapshot.coverage.represented_s if snapshot.coverage else snapshot.duration_s


def _covered(coverage: Coverage) -> str:
    """Return which part was measured, as a line."""
    budget = f"budget {coverage.budget_percent:g}% of a CPU"
    if coverage.whole:
        return f"{budget}: everything was measured"
    parts = [f"{fmt.per_cent(100 * coverage.open_share)} of the time"]
    parts += [f"in {fmt.plural(coverage.slices, 'slice')}"] if coverage.slices else []
    if coverage.followed_s < _NEARLY_ALL * coverage.open_s:
        parts.append(f"and {fmt.per_cent(100 * coverage.followed_s / coverage.open_s)} of its packets")
    measured = " ".join(parts)
    return f"{budget}: {measured} measured; counts are estimates, ± is at {CONFIDENCE_PERCENT}% confidence"


def _error(row: HopRow, percentile: str, terminal: Terminal) -> str:
    """Return how far a percentile may be off, as a part of it; or above what it is, where nothing more is known."""
    value_ns = row.histogram.percentile(PERCENTILES[percentile])
    bounds = row.bounds.get(percentile) if row.bounds else None
    if not value_ns or bounds is None:
        return fmt.MISSING
    least_ns, most_ns = bounds
    if most_ns is None:
        return ">" + fmt.time(least_ns, unicode=terminal.unicode, digits=2)
    share = max(value_ns - least_ns, most_ns - value_ns) / value_ns
    if share > _MOST_TIMES:
        return f"±>{_MOST_TIMES}x"
    return f"±{share:.0%}" if share < _MOST_SHARE else f"±{share:.0f}x"


def _indented(rows: Sequence[HopRow]) -> list[str]:
    """Return the hops' names; ``rx.tcp_queue`` is below ``rx.tcp``, parts of a hop, by their cause, below it."""
    hops = {row.hop for row in rows}
    return [_name(row, _depth(row, hops)) for row in rows]


def _name(row: HopRow, depth: int) -> str:
    # Below its hop, which tells the protocol, a part is its cause.
    return " " * depth + (row.cause if row.cause and depth else row.hop)


def _depth(row: HopRow, hops: Collection[str]) -> int:
    stem, _, last = row.hop.partition("_")
    if not last or stem not in hops or _is_total(row):
        return 0
    return 2 if last in PARTS_OF_WAKE else 1


def _is_total(row: HopRow) -> bool:
    return row.hop.endswith(TOTAL_SUFFIX)


def _filters(snapshot: Snapshot) -> str:
    return ", ".join(f"{name}={value}" for name, value in snapshot.filters.items())


def nothing_seen(snapshot: Snapshot) -> str:
    """Return the sentence that stands where there is no sample to show."""
    if snapshot.lost or any(discard.count for discard in snapshot.discarded):
        return "No samples could be used, for the following reasons."
    if snapshot.filters:
        return (
            f"No packets matched {_filters(snapshot)}: use a wider filter, or omit it to see whether there is "
            "any traffic."
        )
    if snapshot.coverage and not snapshot.coverage.whole:
        return "No packets observed in the part of the time that was measured."
    return "No packets observed: is there any traffic? `hopscope demo` generates its own."
