# SPDX-License-Identifier: Apache-2.0
"""Snapshots put together: of one host one after the other, or of several hosts beside each other.

Counts, sums and histograms add up exactly, and the largest duration is the largest of all. Rows of equal groups become
one; :func:`labelled` keeps those of different hosts apart. Per cent of one CPU are weighted by time, so that those of
hosts beside each other add up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hopscope.model.cpu import CpuRow, CpuSnapshot, added
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.sampled import Coverage
from hopscope.model.snapshot import (
    PACKET_FIGURES,
    PERCENTILES,
    Discard,
    Ending,
    HopRow,
    Overhead,
    PacketAccount,
    ProgramCost,
    Snapshot,
)
from hopscope.model.stacks import merge as merge_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_Account: TypeAlias = "Callable[[Sequence[Snapshot]], PacketAccount | None]"
SnapshotT = TypeVar("SnapshotT", Snapshot, CpuSnapshot, DropSnapshot)

HOST = "host"


def in_turn(snapshots: Sequence[SnapshotT]) -> SnapshotT:
    """Return what snapshots of one host found that followed each other; the last says how it was attached."""
    last = snapshots[-1]
    return last if len(snapshots) == 1 else _merged(snapshots, sum(each.duration_s for each in snapshots), _in_turn)


def beside(hosts: Mapping[str, SnapshotT]) -> SnapshotT:
    """Return what several hosts found in the same time: host → its snapshot, at least one."""
    snapshots = list(hosts.values())
    merged = _merged(snapshots, max(each.duration_s for each in snapshots), _beside)
    notes = [f"{host}: {note}" for host, snapshot in hosts.items() for note in snapshot.notes]
    if isinstance(merged, CpuSnapshot):
        return replace(merged, plan=[], notes=notes, cpus=sum(each.cpus for each in snapshots))
    return replace(merged, plan=[], notes=notes)


def labelled(snapshot: SnapshotT, host: str) -> SnapshotT:
    """Return a snapshot whose rows are grouped by host before all else."""
    if isinstance(snapshot, Snapshot):
        return replace(snapshot, hops=[replace(row, group=_labelled(row.group, host)) for row in snapshot.hops])
    if isinstance(snapshot, DropSnapshot):
        return replace(snapshot, rows=[replace(row, group=_labelled(row.group, host)) for row in snapshot.rows])
    return replace(
        snapshot,
        rows=[replace(row, group=_labelled(row.group, host)) for row in snapshot.rows],
        stacks=[replace(stack, group=f"{host} {stack.group}".rstrip()) for stack in snapshot.stacks],
    )


def _labelled(group: Mapping[str, str], host: str) -> dict[str, str]:
    return {HOST: host, **group}


def _merged(snapshots: Sequence[SnapshotT], duration_s: float, account: _Account) -> SnapshotT:
    """Return the last of the snapshots with the figures of all, which took `duration_s` together."""
    last = snapshots[-1]
    common: dict[str, Any] = {
        "started_ns": min(each.started_ns for each in snapshots),
        "duration_s": duration_s,
        "overhead": _overhead([(each.overhead, each.duration_s) for each in snapshots], duration_s),
        "lost": sum(each.lost for each in snapshots),
        "notes": list(dict.fromkeys(note for each in snapshots for note in each.notes)),
    }
    if isinstance(last, Snapshot):
        all_hops = [each for each in snapshots if isinstance(each, Snapshot)]
        return replace(
            last,
            **common,
            hops=_hops(all_hops),
            discarded=_discarded(all_hops),
            packets=account(all_hops),
            coverage=_coverage([each.coverage for each in all_hops if each.coverage]),
        )
    if isinstance(last, DropSnapshot):
        all_drops = [each for each in snapshots if isinstance(each, DropSnapshot)]
        return replace(last, **common, rows=_drops(all_drops), dropped=sum(each.dropped for each in all_drops))
    all_cpus = [each for each in snapshots if isinstance(each, CpuSnapshot)]
    energies_j = [each.energy_j for each in all_cpus if each.energy_j is not None]
    return replace(
        last,
        **common,
        total=CpuRow({}, added(each.total for each in all_cpus)),
        rows=_cpu_rows(all_cpus),
        stacks=merge_stacks(stack for each in all_cpus for stack in each.stacks),
        ticks=sum(each.ticks for each in all_cpus),
        energy_j=sum(energies_j) if len(energies_j) == len(all_cpus) else None,
    )


def _hops(snapshots: Sequence[Snapshot]) -> list[HopRow]:
    """Return the rows, those of a hop below each other."""
    rows: dict[str, dict[tuple[tuple[str, str], ...], HopRow]] = {name: {} for name in _order(snapshots)}
    for row in (row for snapshot in snapshots for row in snapshot.hops):
        groups = rows[row.hop]
        key = tuple(row.group.items())
        groups[key] = _hop(groups[key], row) if key in groups else row
    return [row for groups in rows.values() for row in groups.values()]


def _hop(one: HopRow, other: HopRow) -> HopRow:
    errors_ns = [row.error_ns for row in (one, other) if row.error_ns is not None]
    # How far percentiles of a sum may be off cannot be told from those of its parts.
    bounds = None if one.bounds is None and other.bounds is None else dict.fromkeys(PERCENTILES)
    return replace(one, histogram=one.histogram + other.histogram, error_ns=max(errors_ns, default=None), bounds=bounds)


def _coverage(parts: Sequence[Coverage]) -> Coverage | None:
    if not parts:
        return None
    return Coverage(
        parts[0].budget_percent,
        sum(each.represented_s for each in parts),
        sum(each.open_s for each in parts),
        sum(each.followed_s for each in parts),
        sum(each.slices for each in parts),
    )


def _order(snapshots: Iterable[Snapshot]) -> list[str]:
    """Return the hops of all; one that the first has not stands behind the one that it follows elsewhere."""
    order: list[str] = []
    for snapshot in snapshots:
        place = 0
        for name in dict.fromkeys(row.hop for row in snapshot.hops):
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1
    return order


def _discarded(snapshots: Iterable[Snapshot]) -> list[Discard]:
    found: dict[tuple[str, str], Discard] = {}
    for each in (discard for snapshot in snapshots for discard in snapshot.discarded):
        key = (each.hop, each.reason)
        found[key] = replace(each, count=each.count + found[key].count) if key in found else each
    return list(found.values())


def _in_turn(snapshots: Sequence[Snapshot]) -> PacketAccount | None:
    """Return the account of intervals that followed each other: what was left after one was there before the next."""
    accounts = _accounts(snapshots)
    if not accounts:
        return None
    return replace(
        accounts[-1],
        before=accounts[0].before,
        entered=sum(each.entered for each in accounts),
        read=sum(each.read for each in accounts),
        endings=_endings(accounts),
    )


def _beside(snapshots: Sequence[Snapshot]) -> PacketAccount | None:
    accounts = _accounts(snapshots)
    if not accounts:
        return None
    sums = {name: sum(getattr(each, name) for each in accounts) for name in PACKET_FIGURES}
    return PacketAccount(**sums, endings=_endings(accounts))


def _accounts(snapshots: Iterable[Snapshot]) -> list[PacketAccount]:
    """Return the account of each; none if one has none."""
    accounts = [each.packets for each in snapshots]
    return [] if None in accounts else [each for each in accounts if each]


def _endings(accounts: Iterable[PacketAccount]) -> list[Ending]:
    found: dict[tuple[str, str, str], Ending] = {}
    for each in (ending for account in accounts for ending in account.endings):
        key = (each.outcome, each.reason, each.hop)
        found[key] = replace(each, count=each.count + found[key].count) if key in found else each
    return list(found.values())


def _drops(snapshots: Iterable[DropSnapshot]) -> list[DropRow]:
    counts: Counter[tuple[tuple[str, str], ...]] = Counter()
    for row in (row for snapshot in snapshots for row in snapshot.rows):
        counts[tuple(row.group.items())] += row.count
    return [DropRow(dict(key), count) for key, count in counts.most_common()]


def _cpu_rows(snapshots: Iterable[CpuSnapshot]) -> list[CpuRow]:
    rows: dict[tuple[tuple[str, str], ...], CpuRow] = {}
    for row in (row for snapshot in snapshots for row in snapshot.rows):
        key = tuple(row.group.items())
        rows[key] = CpuRow(row.group, added([rows[key], row])) if key in rows else row
    merged = list(rows.values())
    # CPUs keep their order, anything else has the busiest first, as where it was measured.
    return merged if all("cpu" in row.group for row in merged) else sorted(merged, key=lambda row: -row.ns)


def _overhead(costs: Sequence[tuple[Overhead, float]], duration_s: float) -> Overhead:
    overheads = [overhead for overhead, _ in costs]
    in_bpf = [(each.bpf_cpu_percent, length_s) for each, length_s in costs if each.bpf_cpu_percent is not None]
    programs: dict[str, ProgramCost] = {}
    for each in (program for overhead in overheads for program in overhead.by_program):
        programs[each.name] = _program(programs[each.name], each) if each.name in programs else each
    return Overhead(
        hits=sum(each.hits for each in overheads),
        ns_per_hit=_per_hit([(each.ns_per_hit, each.hits) for each in overheads]),
        bpf_cpu_percent=_weighted(in_bpf, duration_s) if in_bpf else None,
        reader_cpu_percent=_weighted([(each.reader_cpu_percent, length_s) for each, length_s in costs], duration_s),
        missed=sum(each.missed for each in overheads),
        by_program=list(programs.values()),
    )


def _program(one: ProgramCost, other: ProgramCost) -> ProgramCost:
    return replace(
        one,
        hits=one.hits + other.hits,
        ns_per_hit=_per_hit([(each.ns_per_hit, each.hits) for each in (one, other)]),
        missed=one.missed + other.missed,
    )


def _per_hit(costs: Iterable[tuple[float | None, int]]) -> float | None:
    """Return the mean cost of a run, each by its runs; None where none is known."""
    known = [(ns, hits) for ns, hits in costs if ns is not None and hits]
    hits = sum(hits for _, hits in known)
    return sum(ns * hits for ns, hits in known) / hits if hits else None


def _weighted(values: Iterable[tuple[float, float]], duration_s: float) -> float:
    return sum(value * length_s for value, length_s in values) / duration_s if duration_s else 0.0
