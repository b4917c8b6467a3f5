# SPDX-License-Identifier: Apache-2.0
"""What networking took from the processors, as tables: by CPU or group, by part, and by what the kernel was busy with.

Per cent are of one CPU, so that the line of all CPUs may have more than 100.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hopscope.model.cpu import NO_PART
from hopscope.model.parts import PARTS
from hopscope.term import format as fmt
from hopscope.term.footer import closing
from hopscope.term.grid import Column, render_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.breakdown import Share
    from hopscope.model.cpu import CpuRow, CpuSnapshot, Part
    from hopscope.term.terminal import Terminal

# Those that every host has; the others are columns where they took time.
_ALWAYS: Final = ("net_rx", "send", "receive")
_RANKS: Final = {"net_rx": 1, "receive": 2, "send": 3}
_LEAST_SHARE: Final = 0.005


def render_cpu(snapshot: CpuSnapshot, terminal: Terminal, *, limit: int | None, breakdown: bool) -> str:
    """Return heading, tables and footer as lines without a line end after the last.

    Parameters
    ----------
    limit
        Maximum rows, the busiest; None: all.
    breakdown
        Whether the categories are shown.
    """
    lines = _heading(snapshot, terminal)
    lines += _by_group(snapshot, terminal, limit)
    seen = [name for name in PARTS if snapshot.total.parts[name].seen]
    if seen and snapshot.ticks:
        lines += ["", *_by_part_sampled(snapshot, seen, terminal)]
    elif seen:
        lines += ["", *_by_part(snapshot, seen, terminal)]
        lines += _by_counter(snapshot, seen, terminal)
    else:
        found = "No sample fell in networking." if snapshot.ticks else "No CPU time was spent on networking."
        lines += terminal.fold(f"{found} Is there any traffic?")
    if breakdown:
        lines += ["", *_by_category(snapshot, terminal)]
    return "\n".join(lines + _footer(snapshot, terminal))


def _heading(snapshot: CpuSnapshot, terminal: Terminal) -> list[str]:
    start = datetime.fromtimestamp(snapshot.started_ns // 10**9, UTC)
    length = fmt.time(snapshot.duration_s * 1e9, unicode=terminal.unicode)
    what = f"total {length}" if snapshot.kind == "total" else length
    text = f"cpu  {start:%Y-%m-%d %H:%M:%S} UTC  {what}  % of one CPU, of {snapshot.cpus}"
    return [terminal.paint(line, "dim") for line in terminal.fold(text)]


def _by_group(snapshot: CpuSnapshot, terminal: Terminal, limit: int | None) -> list[str]:
    shown = snapshot.rows[:limit]
    rows = [snapshot.total, *shown]
    keys = list(snapshot.rows[0].group) if snapshot.rows else ["cpu"]
    names = [name for name in PARTS if name in _ALWAYS or snapshot.total.parts[name].seen]
    table = [
        *(Column(key, ["all", *(row.group[key] for row in shown)], left=True) for key in keys),
        Column("total", [_time(snapshot, row, sum(row.parts.values(), NO_PART)) for row in rows]),
        *(
            Column(name, [_time(snapshot, row, row.parts[name]) for row in rows], rank=_RANKS.get(name, 4))
            for name in names
        ),
    ]
    lines = render_grid(table, terminal, bold=frozenset({0}))
    left_out = len(snapshot.rows) - len(shown)
    if left_out:
        lines += terminal.fold(f"and {left_out:,} more with less CPU time (--limit)")
    return lines


def _by_part(snapshot: CpuSnapshot, names: Sequence[str], terminal: Terminal) -> list[str]:
    parts = [snapshot.total.parts[name] for name in names]
    unicode = terminal.unicode

    def rate(count: int) -> str:
        return fmt.rate(count / snapshot.duration_s) if count and snapshot.duration_s else fmt.MISSING

    def each(ns: int, count: int) -> str:
        return fmt.time(ns / count if count else None, unicode=unicode)

    def per_core(part: Part, count: int) -> str:
        return fmt.rate(count / part.ns * 1e9) if count and part.ns else fmt.MISSING

    table = [
        Column("part", names, left=True),
        Column("% CPU", [_percent(snapshot, part.ns) for part in parts]),
        Column("runs/s", [rate(part.runs) for part in parts], rank=3),
        Column("each", [each(part.ns, part.runs) for part in parts]),
        Column("packets/s", [rate(part.packets) for part in parts], rank=4),
        Column("per packet", [each(part.ns, part.packets) for part in parts], rank=1),
        Column("packets/core s", [per_core(part, part.packets) for part in parts], rank=6),
        Column("bytes/s", [rate(part.len_bytes) for part in parts], rank=5),
        Column("per KiB", [each(part.ns * 1024, part.len_bytes) for part in parts], rank=2),
        Column("bytes/core s", [per_core(part, part.len_bytes) for part in parts], rank=7),
    ]
    return render_grid(table, terminal)


def _by_part_sampled(snapshot: CpuSnapshot, names: Sequence[str], terminal: Terminal) -> list[str]:
    parts = [snapshot.total.parts[name] for name in names]
    table = [
        Column("part", names, left=True),
        Column("% CPU", [_percent(snapshot, part.ns) for part in parts]),
        Column("95 %", [_interval(snapshot, snapshot.total, part) for part in parts]),
        Column("samples", [fmt.count(part.samples) for part in parts], rank=1),
    ]
    return render_grid(table, terminal)


def _by_counter(snapshot: CpuSnapshot, names: Sequence[str], terminal: Terminal) -> list[str]:
    """Return what hardware counters say of each part, after a blank line; nothing where they were not asked for."""
    parts = [(part, part.counted) for part in map(snapshot.total.parts.__getitem__, names) if part.counted]
    if not parts:
        return []

    def ratio(number: int | None, of: int | None) -> str:
        return fmt.MISSING if number is None or not of else fmt.rate(number / of)

    table = [
        Column("part", names, left=True),
        Column("cycles/ns", [ratio(counted.cycles, part.ns) for part, counted in parts], rank=5),
        Column("instr/cycle", [ratio(counted.instructions, counted.cycles) for _, counted in parts]),
        Column("cycles/packet", [ratio(counted.cycles, part.packets) for part, counted in parts], rank=1),
        Column("misses/packet", [ratio(counted.cache_misses, part.packets) for part, counted in parts], rank=3),
        Column("cycles/run", [ratio(counted.cycles, part.runs) for part, counted in parts]),
        Column("misses/run", [ratio(counted.cache_misses, part.runs) for part, counted in parts], rank=2),
        Column("cycles/byte", [ratio(counted.cycles, part.len_bytes) for part, counted in parts], rank=4),
    ]
    return ["", *render_grid(table, terminal)]


def _by_category(snapshot: CpuSnapshot, terminal: Terminal) -> list[str]:
    shares = snapshot.breakdown()
    shown = [share for share in shares if share.ns >= _LEAST_SHARE * snapshot.total.ns]
    if not shown:
        return terminal.fold(f"No networking stack was sampled, at {snapshot.hz} Hz on each CPU.")
    table = [
        Column("part", _first_of_each([share.part for share in shown]), left=True),
        Column("busy with", [_named(share) for share in shown], left=True),
        Column("% CPU", [_percent(snapshot, share.ns) for share in shown]),
        Column("of part", [fmt.part(share.of_part) for share in shown]),
        Column("95 %", [f"{share.low:.0%}..{share.high:.0%}" for share in shown], rank=1),
        Column("samples", [fmt.count(share.samples) for share in shown], rank=3),
        Column("per packet", [_per_packet(snapshot, share, terminal) for share in shown], rank=2),
    ]
    lines = render_grid(table, terminal)
    left_out = len(shares) - len(shown)
    if left_out:
        rest_ns = sum(share.ns for share in shares) - sum(share.ns for share in shown)
        lines += terminal.fold(f"and {left_out} more, together {_percent(snapshot, rest_ns)}")
    return lines


def _first_of_each(names: Sequence[str]) -> list[str]:
    """Return the names, one that stands above already as a blank."""
    return [name if not index or names[index - 1] != name else "" for index, name in enumerate(names)]


def _named(share: Share) -> str:
    return f"{share.category} {share.detail}".rstrip()


def _per_packet(snapshot: CpuSnapshot, share: Share, terminal: Terminal) -> str:
    packets = snapshot.total.parts[share.part].packets
    return fmt.time(share.ns / packets if packets else None, unicode=terminal.unicode)


def _time(snapshot: CpuSnapshot, row: CpuRow, part: Part) -> str:
    """Return a time; with the interval that it is in where samples alone tell it."""
    if not snapshot.ticks:
        return _percent(snapshot, part.ns)
    return f"{_percent(snapshot, part.ns)} {_interval(snapshot, row, part)}"


def _interval(snapshot: CpuSnapshot, row: CpuRow, part: Part) -> str:
    low, high = (snapshot.cores(ns) * 100 for ns in snapshot.bounds_ns(part.samples, of_one_cpu="cpu" in row.group))
    return f"{low:.1f}..{high:.1f}%"


def _percent(snapshot: CpuSnapshot, ns: int) -> str:
    value = snapshot.cores(ns) * 100
    if not value:
        return fmt.MISSING
    return f"{value:.0f}%" if value >= 99.95 else f"{value:.1f}%" if value >= 0.05 else "<0.1%"


def _footer(snapshot: CpuSnapshot, terminal: Terminal) -> list[str]:
    warnings = []
    if snapshot.lost:
        warnings.append(f"lost: {fmt.plural(snapshot.lost, 'stack')}, because a kernel table was full")
    texts = []
    if snapshot.energy_j is not None:
        texts.append(f"energy: {snapshot.energy_j:.1f} J, all processor packages")
    texts += [f"note: {note}" for note in snapshot.notes]
    return closing(snapshot.overhead, terminal, warnings, texts)
