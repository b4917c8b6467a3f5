# SPDX-License-Identifier: Apache-2.0
"""What stands below every result: what is missing from it, and what measuring cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.snapshot import Discard, Outcome, Overhead, PacketAccount, Snapshot
    from hopscope.term.terminal import Terminal

# Of each outcome; the rest is one number.
_REASONS: Final = 4


def footer(snapshot: Snapshot, terminal: Terminal) -> list[str]:
    """Return the lines on lost, discarded and missed samples, on cost, and the notes."""
    warnings = []
    if snapshot.lost:
        share = _share(snapshot.lost, snapshot.sample_count)
        warnings.append(f"lost: {plural(snapshot.lost, 'sample')} ({share}), because a kernel buffer was full")
    warnings += _discarded(snapshot)
    notes = [f"note: {note}" for note in snapshot.notes]
    lines = closing(snapshot.overhead, terminal, warnings, notes)
    account = account_line(snapshot.packets) if snapshot.packets else ""
    return [terminal.paint(line, "dim") for line in terminal.fold(account)] + lines if account else lines


def account_line(packets: PacketAccount) -> str:
    """Return what became of the packets, as a line; empty if there were none."""
    texts = [
        f"{packets.read:,} read",
        *(
            f"{count:,} {name}"
            for count, name in (
                (packets.queued, "queued"),
                (packets.under_way + max(packets.unaccounted, 0), "not known yet"),
            )
            if count
        ),
        *_ended(packets, "dropped", "dropped"),
        *_ended(packets, "discarded", "others"),
    ]
    came = f"{packets.entered:,} entered"
    if packets.before:
        came += f", {packets.before:,} from before"
    return f"packets: {came}: {', '.join(texts)}" if packets.entered or packets.before else ""


def _ended(packets: PacketAccount, outcome: Outcome, name: str) -> list[str]:
    reasons: Counter[str] = Counter()
    for ending in packets.endings:
        if ending.outcome == outcome:
            reasons[ending.reason] += ending.count
    if not reasons:
        return []
    most = reasons.most_common(_REASONS)
    listed = [f"{reason} {count:,}" for reason, count in most]
    rest = reasons.total() - sum(count for _, count in most)
    listed += [f"{rest:,} for other reasons (--json)"] if rest else []
    return [f"{reasons.total():,} {name} ({', '.join(listed)})"]


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
