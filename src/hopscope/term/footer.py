# SPDX-License-Identifier: Apache-2.0
"""What stands below every result: what is missing from it, and what measuring cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.term import format as fmt
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.snapshot import Discard, Overhead, Snapshot
    from hopscope.term.terminal import Terminal


def footer(snapshot: Snapshot, terminal: Terminal) -> list[str]:
    """Return the lines on lost, discarded and missed samples, on cost, and the notes."""
    warnings = []
    if snapshot.lost:
        share = _share(snapshot.lost, snapshot.sample_count)
        warnings.append(f"lost: {plural(snapshot.lost, 'sample')} ({share}), because a kernel buffer was full")
    warnings += _discarded(snapshot)
    return closing(snapshot.overhead, terminal, warnings, [f"note: {note}" for note in snapshot.notes])


def closing(overhead: Overhead, terminal: Terminal, warnings: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return the lines that end every result: what is missing from it, what measuring cost, and `texts`."""
    missing = [*warnings]
    if overhead.missed:
        missing.append(f"missed: {plural(overhead.missed, 'BPF run')} suppressed by the kernel (recursion)")
    lines = [terminal.paint(line, "warn") for text in missing for line in terminal.fold(text)]
    return lines + [terminal.paint(line, "dim") for text in (cost(overhead), *texts) for line in terminal.fold(text)]


def _discarded(snapshot: Snapshot) -> list[str]:
    """Return one line on all samples that were discarded, with the most frequent reason."""
    found = sorted((each for each in snapshot.discarded if each.count), key=lambda discard: -discard.count)
    if len(found) < 2:
        return [f"discarded: {_discard(each, snapshot)}" for each in found]
    total = plural(sum(each.count for each in found), "sample")
    return [f"discarded: {total} for {len(found)} reasons (--json), most: {_discard(found[0], snapshot)}"]


def _discard(discard: Discard, snapshot: Snapshot) -> str:
    used = sum(row.histogram.count for row in snapshot.hops if row.hop == discard.hop)
    return f"{discard.count:,} at {discard.hop} ({_share(discard.count, used)}): {discard.meaning}"


def cost(overhead: Overhead) -> str:
    """Return what measuring cost, as a line."""
    per_hit = "" if overhead.ns_per_hit is None else f" ({overhead.ns_per_hit:.0f} ns/hit)"
    if overhead.bpf_cpu_percent is None:
        bpf = "CPU in BPF unknown (takes CAP_SYS_ADMIN and Linux 5.8)"
    else:
        bpf = f"{fmt.per_cent(overhead.bpf_cpu_percent)} CPU in BPF{per_hit}"
    return f"cost: {bpf}, {fmt.per_cent(overhead.reader_cpu_percent)} reader"


def _share(missing: int, used: int) -> str:
    return fmt.per_cent(100 * missing / (missing + used))
