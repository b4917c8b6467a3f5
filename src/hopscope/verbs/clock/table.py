# SPDX-License-Identifier: Apache-2.0
"""Clocks of several hosts as tables: a line a pair, a line a host, and what is left of each loop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.term import format as fmt
from hopscope.term.bar import ASCII_BLOCKS, BLOCKS
from hopscope.term.format import plural
from hopscope.term.grid import Column, render_grid
from hopscope.verbs.clock.report import HARDWARE, MIXED, SOFTWARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.term.terminal import Terminal
    from hopscope.verbs.clock.report import ChangeRow, ClockReport, Comparison, Delays, HostRow, Loop, PairRow

_SECOND: Final = 1_000_000_000
# Widths that hold nearly all, so that nothing moves between intervals.
_OFFSET, _TIME, _DRIFT, _TREND, _STAMPS = 12, 6, 10, 16, 8
_MOST_CHANGES: Final = 10
_STAMPED: Final = {
    HARDWARE: "by both NICs",
    SOFTWARE: "by both kernels",
    MIXED: "by both NICs in some windows, by both kernels in others",
}
# Beyond this, nothing is known of a drift: there is hardly more than one window.
_ANY_DRIFT: Final = 1e-5


def render_clocks(report: ClockReport, terminal: Terminal) -> str:
    """Return heading, tables and notes of a report as lines without a line end after the last."""
    end = datetime.fromtimestamp(report.time_ns // _SECOND, UTC)
    length = fmt.time(report.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if report.kind == "total" else length
    lines = [terminal.paint(f"clock  {end:%Y-%m-%d %H:%M:%S} UTC  {what}", "dim")]
    lines += render_grid(_pair_columns(report.pairs, terminal), terminal)
    if report.kind == "total":
        lines += ["", *render_grid(_host_columns(report.hosts, terminal), terminal)]
        lines += [line for host in report.hosts for line in _phcs(host, report.hosts[0], terminal)]
        lines += [line for said in _stamped(report.pairs, terminal) for line in terminal.fold(said)]
        lines += [line for loop in report.loops for line in terminal.fold(_loop(loop, terminal))]
    hints = [hint for row in report.pairs for hint in _hints(row, terminal)] if report.kind == "total" else []
    failed = [f"{row.first} and {row.second}: {row.why}" for row in report.pairs if row.why]
    changes = [_change(change) for change in report.changes[-_MOST_CHANGES:]]
    if len(report.changes) > _MOST_CHANGES:
        changes.insert(0, f"{plural(len(report.changes) - _MOST_CHANGES, 'earlier clock change')} not shown")
    for note in (*changes, *hints, *report.notes, *failed):
        lines += [terminal.paint(line, "warn") for line in terminal.fold(note)]
    return "\n".join(lines)


def exact(offset_ns: int) -> str:
    """Return an offset to the nanosecond: in ns up to 100 s of µs, else in seconds."""
    sign, size_ns = "-" if offset_ns < 0 else "+", abs(offset_ns)
    if size_ns < _SECOND // 1000:
        return f"{sign}{size_ns:,} ns"
    whole, rest = divmod(size_ns, _SECOND)
    return f"{sign}{whole:,}.{rest:09d} s"


def ppb(rate: float) -> str:
    """Return a drift in parts per billion."""
    return f"{rate * 1e9:+,.1f}"


def _pair_columns(pairs: Sequence[PairRow], terminal: Terminal) -> list[Column]:
    def times(of: Sequence[int | None]) -> list[str]:
        return [fmt.time(value, unicode=terminal.unicode) for value in of]

    def least(delays: Sequence[Delays | None]) -> list[str]:
        return times([None if found is None else found.least_ns for found in delays])

    def waited(delays: Sequence[Delays | None]) -> list[str]:
        return times([None if found is None else found.waited_ns for found in delays])

    now = [row.now for row in pairs]
    there, back = [row.there for row in pairs], [row.back for row in pairs]
    arrow = "→" if terminal.unicode else ">"
    plus_minus = "±" if terminal.unicode else "+-"
    return [
        Column("pair", [f"{row.first}{arrow}{row.second}" for row in pairs], left=True),
        Column("offset".rjust(_OFFSET), [fmt.MISSING if at is None else exact(at.offset_ns) for at in now]),
        Column(plus_minus.rjust(_TIME), times([None if at is None else at.bound_ns for at in now])),
        Column("drift ppb".rjust(_DRIFT), [_drift(at) for at in now], rank=1),
        Column(plus_minus.rjust(_TIME), [_drift_bound(at) for at in now], rank=2),
        Column("there".rjust(_TIME), least(there), rank=4),
        Column("back".rjust(_TIME), least(back), rank=4),
        Column("+there".rjust(_TIME), waited(there), rank=6),
        Column("+back".rjust(_TIME), waited(back), rank=6),
        Column("answered", [f"{row.answered:,}/{row.probes:,}" for row in pairs], rank=3),
        Column("lost", [f"{row.lost:,}" for row in pairs], rank=3),
        Column("refused", [f"{sum(row.refused.values()):,}" for row in pairs], rank=5),
        Column("stamps".ljust(_STAMPS), [row.stamps for row in pairs], rank=5, left=True),
        Column("trend".ljust(_TREND), [_trend(row, terminal) for row in pairs], rank=7, left=True),
        Column("state", [row.state for row in pairs], left=True),
    ]


def _stamped(pairs: Sequence[PairRow], terminal: Terminal) -> list[str]:
    """Say who stamped the probes: of all pairs at once where it is the same."""
    kinds = {row.stamps for row in pairs if row.stamps}
    if len(kinds) == 1:
        return [f"probes were time-stamped {_STAMPED[kinds.pop()]}"]
    arrow = "→" if terminal.unicode else ">"
    return [f"{row.first}{arrow}{row.second}: time-stamped {_STAMPED[row.stamps]}" for row in pairs if row.stamps]


def _drift(at: Comparison | None) -> str:
    return fmt.MISSING if at is None or at.drift_bound > _ANY_DRIFT else ppb(at.drift)


def _drift_bound(at: Comparison | None) -> str:
    return fmt.MISSING if at is None or at.drift_bound > _ANY_DRIFT else f"{at.drift_bound * 1e9:,.0f}"


def _trend(row: PairRow, terminal: Terminal) -> str:
    """Return the last windows without their drift, each a character between the least and the most of them."""
    if row.history is None or row.now is None:
        return ""
    at_ns, offset_ns = row.history.at_ns[-_TREND:], row.history.offset_ns[-_TREND:]
    values = (offset_ns - offset_ns[-1]).astype(np.float64) - row.now.drift * (at_ns - at_ns[-1])
    low, high = values.min(), values.max()
    blocks = (BLOCKS if terminal.unicode else ASCII_BLOCKS)[1:]
    places = np.rint((values - low) / max(high - low, 1.0) * (len(blocks) - 1)).astype(int)
    return "".join(blocks[place] for place in places)


def _host_columns(hosts: Sequence[HostRow], terminal: Terminal) -> list[Column]:
    plus_minus = "±" if terminal.unicode else "+-"
    first = hosts[0].name
    return [
        Column("host", [host.name for host in hosts], left=True),
        Column("address", [host.address for host in hosts], rank=2, left=True),
        Column(
            f"wall clock - {first}'s",
            [fmt.MISSING if host.realtime_ns is None else exact(host.realtime_ns) for host in hosts],
        ),
        Column(plus_minus, [fmt.time(host.realtime_bound_ns, unicode=terminal.unicode) for host in hosts]),
        Column("TAI - UTC", [f"{host.tai_offset_s} s" if host.tai_offset_s else "unknown" for host in hosts], rank=3),
        Column("synchronized by", [_daemons(host, terminal) for host in hosts], left=True),
    ]


def _daemons(host: HostRow, terminal: Terminal) -> str:
    names = ", ".join(host.daemons)
    if not host.synchronized:
        return f"{names}; not synchronized" if names else "none (not synchronized)"
    within = f"estimated error {fmt.time(host.max_error_ns, unicode=terminal.unicode)}"
    return f"{names or 'an unknown daemon'}, {within}"


def _phcs(host: HostRow, first: HostRow, terminal: Terminal) -> list[str]:
    return [
        line
        for phc in host.phcs
        for line in terminal.fold(
            f"{phc.name} of {host.name} is ahead of {first.name}'s wall clock by {exact(phc.ahead_ns)} "
            f"{'±' if terminal.unicode else '+-'} {fmt.time(phc.bound_ns, unicode=terminal.unicode)}"
        )
    ]


def _change(change: ChangeRow) -> str:
    done = [f"the wall clock was set by {exact(change.step_ns)}"] * bool(change.step_ns)
    done += [f"the frequency was changed by {ppb(change.rate)} ppb"] * bool(change.rate)
    return f"{change.host}: {' and '.join(done)}"


def _loop(loop: Loop, terminal: Terminal) -> str:
    arrow = " → " if terminal.unicode else " > "
    way = arrow.join((*loop.hosts, loop.hosts[0]))
    bound = fmt.time(loop.bound_ns, unicode=terminal.unicode)
    judged = (
        "consistent"
        if abs(loop.off_ns) <= loop.bound_ns
        else "inconsistent: at least one of these comparisons is wrong"
    )
    return f"closure error around {way}: {loop.off_ns:+,} ns, bound {bound}: {judged}"


def _hints(row: PairRow, terminal: Terminal) -> list[str]:
    """Return what the delays say of the network between two hosts."""
    if row.there is None or row.back is None or row.now is None:
        return []
    longer_ns = row.there.waited_ns - row.back.waited_ns
    if abs(longer_ns) <= row.now.bound_ns:
        return []
    way = (row.first, row.second) if longer_ns > 0 else (row.second, row.first)
    length = fmt.time(abs(longer_ns), unicode=terminal.unicode)
    return [
        (
            f"Packets from {way[0]} to {way[1]} typically take {length} longer than those in the opposite "
            "direction, which indicates a queue in this direction. The offset is derived from the fastest "
            "packets, and the bound covers their queueing delay"
        )
    ]
